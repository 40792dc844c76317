// Catch2's main of the frontend's unit tests.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
