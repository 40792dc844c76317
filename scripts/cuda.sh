# shellcheck shell=bash
# Installs what a build for NVIDIA GPUs needs and the system's CUDA toolkit lacks: headers and compilers from NVIDIA's wheels on
# PyPI, into .cuda/ of this project. Nothing is installed into a Python environment. The libraries are not installed: they are
# opened at run time, from the toolkit or from wheels of a Python environment. Sourced by setup.

cudaFolder=${root:?}/.cuda

# Required file, the wheel that contains it, and the wheel's SHA-256 (for x86-64; headers are the same for all). One wheel may
# provide several files. The first is wanted on any machine with a toolkit.
cudaParts=(
  "include/cudnn_frontend.h nvidia-cudnn-frontend==1.32.0 c6006556017a4d1c914c52a556c71b1267f2d6a0500f742e7b4edef539878df0"
  "include/cuda.h nvidia-cuda-runtime==13.0.96 7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548"
  "include/crt/host_config.h nvidia-cuda-crt==13.0.88 2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4"
  "include/nv/target nvidia-cuda-cccl==13.0.85 e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649"
  "include/nvrtc.h nvidia-cuda-nvrtc==13.0.88 ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575"
  "include/cublasLt.h nvidia-cublas==13.0.2.14 0cf238ffdbe46c00cb9aa98e7bca745c223a5ca5a53e686ac8b3e5a08fe80d6c"
  "include/cudnn.h nvidia-cudnn-cu13==9.19.1.2 7609f4bbcde269c4aa8869e12112a1924fb6e032a00842912caafcb4e15d42d6"
  "include/nccl.h nvidia-nccl-cu13==2.28.9 e4553a30f34195f3fa1da02a6da3d6337d28f2003943aa0a3d247bbc25fefc42"
  "include/nvtx3/nvToolsExt.h nvidia-nvtx==13.0.85 4936d1d6780fbe68db454f5e72a42ff64d1fd6397df9f363ae786930fd5c1cd4"
  "nvvm/bin/cicc nvidia-nvvm==13.0.88 c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0"
  "bin/nvcc nvidia-cuda-nvcc==13.0.88 56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03"
)

# haveCuda FILE: whether it is in the toolkit, the system, this project's .cuda/ or (for a program) in PATH. Newer toolkits have
# nv/target in include/cccl; another version of cudnn-frontend in .cuda/ does not count.
haveCuda() {
  local file=$1 prefix
  if [ "$file" = include/cudnn_frontend.h ] && [ -e "$cudaFolder/$file" ]; then
    [ "$(cat "$cudaFolder/cudnn-frontend.version" 2>/dev/null)" = "$(cudaWheel "$file")" ]
    return
  fi
  for prefix in "${CUDA_HOME:-}" /usr/local/cuda /usr "$cudaFolder" "${CUDNN_FRONTEND_PATH:-}"; do
    [ -n "$prefix" ] || continue
    [ -e "$prefix/$file" ] || [ -e "$prefix/include/cccl/${file#include/}" ] && return 0
  done
  case $file in
    bin/*) command -v "${file#bin/}" >/dev/null ;;
    nvvm/*) [ ! -e "$cudaFolder/bin/nvcc" ] && haveCuda bin/nvcc ;; # belongs to an nvcc outside .cuda/
    *) return 1 ;;
  esac
}

cudaWheel() { # FILE: its wheel and version
  local part
  for part in "${cudaParts[@]}"; do
    [ "${part%% *}" = "$1" ] && cut -d' ' -f2 <<<"$part"
  done
}

missingCuda() { # the required files that were not found
  local part
  for part in "${cudaParts[@]}"; do
    haveCuda "${part%% *}" || echo "${part%% *}"
  done
}

# A Python with pip: the system's, otherwise one in a temporary virtual environment in FOLDER.
pythonWithPip() {
  local folder=$1
  if python3 -m pip --version >/dev/null 2>&1; then
    echo python3
  elif python3 -m venv "$folder/venv" >/dev/null 2>&1; then
    echo "$folder/venv/bin/python3"
  else
    return 1
  fi
}

# unpackWheel PYTHON WHEEL FOLDER: extracts headers and compilers into a toolkit's layout.
unpackWheel() {
  "$1" - "$2" "$3" <<'PYTHON'
import os, re, sys, zipfile

wheel, folder = sys.argv[1:]
keep = re.compile(r"^(?:nvidia/[^/]+/)?((?:include|bin|nvvm)/.+)$")
with zipfile.ZipFile(wheel) as archive:
    for member in archive.namelist():
        match = keep.match(member)
        if not match or member.endswith("/") or ".." in member.split("/"):
            continue
        target = os.path.join(folder, match.group(1))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target + ".part", "wb") as out:
            out.write(archive.read(member))
        os.chmod(target + ".part", 0o755 if archive.getinfo(member).external_attr >> 16 & 0o100 else 0o644)
        os.replace(target + ".part", target)
PYTHON
}

# fetchCuda FILE...: downloads the wheels with these files. Returns a status other than 0 if one is not available.
fetchCuda() {
  local file part python platforms=() status=0 folder
  folder=$(mktemp -d)
  python=$(pythonWithPip "$folder") || { rm -rf "$folder"; say "setup: python3 has neither pip nor venv"; return 1; }
  for file in manylinux_2_28 manylinux_2_27 manylinux_2_18 manylinux_2_17 manylinux2014 manylinux_2_12 manylinux2010 manylinux_2_5; do
    platforms+=(--platform "${file}_x86_64")
  done
  for file in "$@"; do
    for part in "${cudaParts[@]}"; do
      [ "${part%% *}" = "$file" ] && awk '{print $2 " --hash=sha256:" $3}' <<<"$part"
    done
  done >"$folder/wheels.txt"
  say "setup: bringing $(cut -d' ' -f1 "$folder/wheels.txt" | paste -sd' ') into ${cudaFolder##*/}/"
  mkdir -p "$folder/wheels"
  "$python" -m pip download --quiet --no-deps --no-cache-dir --disable-pip-version-check --retries 1 --timeout 20 \
    --require-hashes --only-binary=:all: --implementation cp --python-version 3.11 --abi cp311 --abi none \
    "${platforms[@]}" --dest "$folder/wheels" --requirement "$folder/wheels.txt" >"$folder/log" 2>&1 || status=1
  [ $status -eq 0 ] || tail -n 2 "$folder/log" >&2
  if [ $status -eq 0 ]; then
    for file in "$folder"/wheels/*.whl; do
      unpackWheel "$python" "$file" "$cudaFolder" || status=1
    done
    case " $* " in *" include/cudnn_frontend.h "*) cudaWheel include/cudnn_frontend.h >"$cudaFolder/cudnn-frontend.version" ;; esac
  fi
  rm -rf "$folder"
  return $status
}

# setupCuda CHECK: installs everything that a build for GPUs needs; CHECK (1) only reports what is missing.
setupCuda() {
  local missing
  mapfile -t missing < <(missingCuda)
  [ ${#missing[@]} -eq 0 ] && return 0
  [ "$1" -eq 1 ] && fail 3 "missing for NVIDIA GPUs: ${missing[*]}"
  if [ "$(uname -m)" != x86_64 ] && ! haveCuda bin/nvcc; then
    fail 3 "nvcc is missing and can only be brought for x86-64: install the CUDA toolkit"
  fi
  fetchCuda "${missing[@]}" || fail 3 "PyPI's wheels could not be had: ${missing[*]}"
  mapfile -t missing < <(missingCuda)
  [ ${#missing[@]} -eq 0 ] || fail 3 "still missing for NVIDIA GPUs: ${missing[*]}"
}

# offerCudnnFrontend CHECK: if there is a toolkit with cuDNN, installs the headers of its frontend, so that the build supports
# cuDNN. If they are not available, the build continues without.
offerCudnnFrontend() {
  haveCuda include/cudnn.h && haveCuda include/cuda.h || return 0
  haveCuda include/cudnn_frontend.h && return 0
  if [ "$1" -eq 1 ]; then
    say "setup: cudnn-frontend is missing: convolution and attention on GPUs will not be built"
  else
    fetchCuda include/cudnn_frontend.h ||
      say "setup: without cudnn-frontend: convolution and attention on GPUs will not be built"
  fi
  return 0
}
