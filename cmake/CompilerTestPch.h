// What the compiler's tests include: Catch2, JSON and MLIR; precompiled once.
#pragma once
#include "cmake/MlirPch.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
