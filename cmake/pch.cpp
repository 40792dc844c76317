// Precompiled headers are built with this empty file (cmake/Precompiled.cmake).
