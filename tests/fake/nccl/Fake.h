// What the fake NCCL offers beside NCCL's own functions.
#pragma once
#include "tests/fake/cuda/Fake.h"

/// Settings as in CLEAVE_FAKE_NCCL (Settings.cpp), from now on; forgets earlier ones.
CLEAVE_FAKE_EXPORT void cleaveFakeNcclSet(const char *text);
