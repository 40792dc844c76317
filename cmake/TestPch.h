// Precompiled header of the runtime's tests: Catch2 and the plan's schema.
#pragma once
#include "cmake/RuntimePch.h"

#include <catch2/catch.hpp>
