// What the tools include: the command line's library and the plan's schema; precompiled once.
#pragma once
#include "cmake/RuntimePch.h"

#include <CLI/CLI.hpp>
