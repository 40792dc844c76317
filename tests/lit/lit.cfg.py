# Configuration of the text tests: each .mlir file specifies how to run cleave-opt and its expected output.
# The build folder is given as `lit --param build=DIR` or in CLEAVE_BUILD; LLVM's tools as `--param llvm=BIN` or found.
import os
import shutil
import subprocess

import lit.formats
import lit.util

config.name = "cleave"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir"]
config.test_source_root = os.path.dirname(__file__)

build = lit_config.params.get("build") or os.environ.get("CLEAVE_BUILD") or os.path.join(config.test_source_root, "../../build")
build = os.path.abspath(build)
config.test_exec_root = os.path.join(build, "tests", "lit")

llvm = lit_config.params.get("llvm")
if not llvm:
    tool = shutil.which("llvm-config-22") or shutil.which("llvm-config")
    llvm = subprocess.check_output([tool, "--bindir"], text=True).strip() if tool else ""

for tool, folder in (("cleave-opt", os.path.join(build, "bin")), ("FileCheck", llvm)):
    if not os.path.exists(os.path.join(folder, tool)):
        lit_config.fatal(f"{tool} is not in {folder or 'any known folder'}")

config.environment["PATH"] = os.pathsep.join([os.path.join(build, "bin"), llvm, os.environ.get("PATH", "")])
