// Functions of the fake NCCL in addition to NCCL's own.
#pragma once
#include "tests/fake/cuda/Fake.h"

/// Replaces the settings; the syntax is that of CLEAVE_FAKE_NCCL (Settings.cpp).
CLEAVE_FAKE_EXPORT void cleaveFakeNcclSet(const char *text);
