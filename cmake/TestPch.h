// What the runtime's tests include: Catch2 and the plan's schema; precompiled once.
#pragma once
#include "cmake/RuntimePch.h"

#include <catch2/catch.hpp>
