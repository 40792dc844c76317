// The precompiled header of the folders that see MLIR is built with this empty file.
