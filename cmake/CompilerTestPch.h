// Precompiled header of the compiler's tests: Catch2, JSON and MLIR.
#pragma once
#include "cmake/MlirPch.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
