// What the processes of a job must have been given alike. They compare it before the first step: a rank that was started
// with another option, plan, program or data set would train another model, or wait for messages that never come.
#pragma once
#include "runtime/comm/Communicator.h"
#include "runtime/data/DataSource.h"

#include <string>
#include <utility>
#include <vector>

namespace cleave {

/// Names, as the user knows them ("--seed"), and values as text.
using GivenValues = std::vector<std::pair<std::string, std::string>>;

/// All ranks call this together. Throws userError, on rank 0, naming the first rank that differs from rank 0, the name
/// and both values; the others learn of it as of any failure.
void compareAmongRanks(World &world, const GivenValues &mine);

/// A data set as far as ranks can tell it from another: fields, samples, and the contents of some samples of each split.
GivenValues describeData(const DataSource &data, DataNeeds needs);

/// This program and the libraries that compute.
GivenValues describeProgram();

/// "sha256:" and the first digits of a text's or file's hash; "none" for an empty name or a file that is not there.
std::string digestOf(const std::string &text);
std::string digestOfFile(const std::string &path);

} // namespace cleave
