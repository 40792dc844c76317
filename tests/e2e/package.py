#!/usr/bin/env python3
"""Tests of Cleave in another project: installed, as part of a build, `cleave new`, and the steps of docs/your-model.md.

package.py --build BUILD [unittest arguments]
"""
import os, re, subprocess, tempfile

import programs
from e2e import Case
from programs import DIGITS, ROOT

PROJECT = """cmake_minimum_required(VERSION 3.16)
project(mine LANGUAGES CXX)
find_package(cleave 0.1 REQUIRED)
add_executable(mine mine.cpp)
target_link_libraries(mine PRIVATE cleave::cleave)
"""
# A parent project that checks that Cleave, as a part of its build, changes none of its settings.
PARENT = """cmake_minimum_required(VERSION 3.24)
project(parent LANGUAGES C CXX)
enable_testing()
%s
if(NOT TARGET cleave::cleave)
  message(FATAL_ERROR "no target cleave::cleave")
endif()
foreach(target runtime_tests compiler_tests mlp bench_kernels)
  if(TARGET ${target})
    message(FATAL_ERROR "${target} is built along")
  endif()
endforeach()
foreach(property COMPILE_OPTIONS INCLUDE_DIRECTORIES LINK_OPTIONS COMPILE_DEFINITIONS)
  get_directory_property(found ${property})
  if(found)
    message(FATAL_ERROR "${property} of the parent: ${found}")
  endif()
endforeach()
foreach(variable CMAKE_RUNTIME_OUTPUT_DIRECTORY CMAKE_CXX_STANDARD CMAKE_CXX_COMPILER_LAUNCHER CMAKE_POSITION_INDEPENDENT_CODE)
  if(DEFINED ${variable})
    message(FATAL_ERROR "${variable} of the parent: ${${variable}}")
  endif()
endforeach()
file(WRITE main.cpp "#include <cleave/cleave.h>\\nint main() {}\\n")
add_executable(mine main.cpp)
target_link_libraries(mine PRIVATE cleave::cleave)
"""


def command(*words, cwd=None, env=None, status=0):
    done = subprocess.run(list(map(str, words)), cwd=cwd, env=env, capture_output=True, text=True, errors="replace", timeout=600)
    assert done.returncode == status, f"{words}: exit {done.returncode}\n{done.stdout[-1500:]}\n{done.stderr[-3000:]}"
    return done.stdout + done.stderr


class Package(Case):
    @classmethod
    def setUpClass(cls):
        cls.installed = tempfile.TemporaryDirectory(prefix="cleave-prefix-")
        cls.prefix = cls.installed.name
        command("cmake", "--install", programs.BUILD, "--prefix", cls.prefix)

    @classmethod
    def tearDownClass(cls):
        cls.installed.cleanup()

    def write(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w") as out:
            out.write(text)

    def configure(self, source, *options):
        return command("cmake", "-G", "Ninja", "-S", source, "-B", os.path.join(source, "build"), *options)

    def test_a_build_that_is_not_installed(self):
        """find_package finds it by its bin/ in PATH, and by its folder."""
        path = {**os.environ, "PATH": os.path.join(programs.BUILD, "bin") + os.pathsep + os.environ["PATH"]}
        for name, options, env in (("by_path", [], path), ("by_folder", ["-DCMAKE_PREFIX_PATH=" + programs.BUILD], None)):
            command(os.path.join(programs.BIN, "cleave"), "new", name, cwd=self.folder.name)
            source = self.path(name)
            said = command("cmake", "-G", "Ninja", "-S", source, "-B", source + "/build", *options, env=env)
            self.assertNotIn("Warning", said)
        command("cmake", "--build", source + "/build")
        command(source + "/build/" + name, "train", "--data", "synthetic", "--steps", 2)

    def test_what_is_installed(self):
        include = os.path.join(self.prefix, "include")
        names = []
        for folder, _, files in os.walk(include):
            for name in files:
                names.append(name)
                with open(os.path.join(folder, name)) as header:
                    for found in re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', header.read(), re.M):
                        self.assertTrue(found.startswith("cleave/") or re.fullmatch(r"[a-z_]+", found), f"{name}: {found}")
        self.assertTrue({"cleave.h", "Dataset.h", "Predictor.h", "Random.h"} <= set(names))
        for tool in ("cleave", "cleave-run", "cleave-opt"):
            command(os.path.join(self.prefix, "bin", tool), "--version")

    def test_every_header_alone(self):
        headers = os.path.join(self.prefix, "include", "cleave")
        for name in sorted(os.listdir(headers)):
            self.write("one.cpp", f"#include <cleave/{name}>\n")
            command("c++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", os.path.join(self.prefix, "include"),
                    self.path("one.cpp"))

    def test_find_package(self):
        self.write("mine/CMakeLists.txt", PROJECT)
        with open(os.path.join(ROOT, "samples", "01_mlp", "mlp.cpp")) as lesson:
            self.write("mine/mine.cpp", lesson.read())
        self.configure(self.path("mine"), f"-DCMAKE_PREFIX_PATH={self.prefix}")
        command("cmake", "--build", self.path("mine/build"))
        mine = self.path("mine/build/mine")
        command(mine, "train", "--data", DIGITS, "--steps", 3, "--mesh", "dp=2,pp=2", "--microbatches", 2)
        command(mine, "check", "--data", "synthetic", "--mesh", "tp=2")

    def test_a_part_of_a_build(self):
        fetch = ("include(FetchContent)\nFetchContent_Declare(cleave GIT_REPOSITORY none)\nFetchContent_MakeAvailable(cleave)\n")
        for name, how, options in (("sub", f"add_subdirectory({ROOT} cleave)", []),
                                   ("fetch", fetch, [f"-DFETCHCONTENT_SOURCE_DIR_CLEAVE={ROOT}"])):
            self.write(f"{name}/CMakeLists.txt", PARENT % how)
            self.configure(self.path(name), *options)
            tests = command("ctest", "--test-dir", self.path(f"{name}/build"), "-N")
            self.assertIn("Total Tests: 0", tests)
            plan = command("ninja", "-C", self.path(f"{name}/build"), "-t", "commands", "mine")
            link, compiled = plan.strip().splitlines()[-1], [l for l in plan.splitlines() if "mine.dir" in l and " -c " in l]
            self.assertRegex(link, r"libcleave\.so")
            self.assertNotIn("llvm", compiled[-1])  # only public headers are needed
            install = command("cmake", "--install", self.path(f"{name}/build"), "--prefix", self.path(f"{name}/prefix"))
            self.assertFalse(os.path.exists(self.path(f"{name}/prefix/include")), install)

    def test_new(self):
        self.ok("cleave", "new", "--help")
        for name, word in (("", "empty"), ("3d", "begins with a letter"), ("a/b", "begins with a letter"),
                           ("../up", "begins with a letter"), ("test", "CMake"), ("x" * 65, "64")):
            self.refused("cleave", "new", name, word=word)
        self.refused("cleave", "new", word="name")
        said = command(os.path.join(self.prefix, "bin", "cleave"), "new", "digits", cwd=self.folder.name)
        self.assertEqual(sorted(os.listdir(self.path("digits"))), ["CMakeLists.txt", "digits.cpp"])
        command(os.path.join(self.prefix, "bin", "cleave"), "new", "digits", cwd=self.folder.name, status=2)
        with open(self.path("digits/digits.cpp")) as model:
            self.assertLess(len(model.readlines()), 25)
        steps = [line.strip() for line in said.splitlines() if line.startswith("  ")]
        self.assertEqual(len(steps), 4)
        command("bash", "-ec", "\n".join(steps), cwd=self.folder.name)  # the commands that `cleave new` prints
        command(self.path("digits/build/digits"), "train", "--data", DIGITS, "--steps", 3, "--mesh", "dp=2,tp=2")

    def follow(self, page):
        """Writes the files of a page and runs its commands; returns what they print."""
        with open(os.path.join(ROOT, "docs", page)) as file:
            text = file.read()
        script = ["set -e"]
        for file, kind, body in re.findall(r"(?:<!-- file: (\S+) -->\n)?```(\w+)\n(.*?)```", text, re.S):
            if kind == "bash":
                script.append(body)
            elif file:
                script.append(f"cat > {file} <<'END_OF_FILE'\n{body}END_OF_FILE\n")
        os.symlink(programs.BUILD, self.path("build"))
        os.symlink(os.path.join(ROOT, "samples"), self.path("samples"))
        return command("bash", "-c", "\n".join(script), cwd=self.folder.name, env={**os.environ, "HOME": self.folder.name})

    def test_the_page_for_people_who_come_from_pytorch(self):
        said = self.follow("from-pytorch.md")
        self.assertEqual(len(re.findall(r"^tutorial: [\d,]+ steps, loss", said, re.M)), 3)
        self.assertRegex(said, r"loss [\d.]+, accuracy [\d.]+%")

    def test_the_page(self):
        said = self.follow("your-model.md")
        self.assertIn("8 ranks = dp 2 x tp 2 x pp 2", said)
        self.assertIn("plan and graph agree", said)
        accuracy = float(re.search(r"^loss \S+, accuracy ([\d.]+)% of 200 samples", said, re.M).group(1))
        self.assertGreater(accuracy, 90)
        self.assertIn("logits.npy: f32 [200,2]", said)


if __name__ == "__main__":
    programs.main()
