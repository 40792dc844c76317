// The IDX format of the MNIST files: big-endian magic 0x000008NN (unsigned bytes, NN dimensions), NN 32-bit sizes,
// data.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace cleave {

struct IdxArray {
  std::vector<int64_t> dims;
  std::vector<uint8_t> data; ///< as many bytes as the product of the dims
};

/// Decodes a whole IDX file. `name` is for error messages. Throws userError that names the rule and the value found.
IdxArray parseIdx(std::span<const uint8_t> bytes, unsigned rank, const std::string &name);

/// Encodes an IDX file.
std::vector<uint8_t> encodeIdx(const IdxArray &array);

/// Reads `path` or, if it does not exist, `path`.gz. Throws userError that names the file.
IdxArray readIdx(const std::string &path, unsigned rank);

/// Reads a whole file, decompressing gzip. Throws userError that names the file, also if it has more than `most` bytes.
std::vector<uint8_t> readMaybeGzip(const std::string &path, uint64_t most);

} // namespace cleave
