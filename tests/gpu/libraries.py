#!/usr/bin/env python3
"""Finds NVIDIA's driver, libraries and devices on this machine, in the same places as runtime/cuda/driver/Library.cpp. As a
program it prints them as JSON. A process cannot close a driver again, so gpu_check.py runs this program in a separate process.
"""
import ctypes, glob, json, os

LIBRARIES = {"driver": ["libcuda.so.1"], "cuBLASLt": ["libcublasLt.so.13"], "cuDNN": ["libcudnn.so.9"], "NCCL": ["libnccl.so.2"]}


def wheels(prefix):
    return [lib for site in sorted(glob.glob(os.path.join(prefix, "lib/python3*/site-packages/nvidia")))
            for lib in sorted(glob.glob(os.path.join(site, "*/lib")))]


def folders():
    found = [os.path.join(home, part) for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if home for part in ("lib64", "lib")]
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if os.environ.get(variable):
            found += wheels(os.environ[variable])
    python = next((f for f in os.environ.get("PATH", "").split(":") if f and os.path.exists(os.path.join(f, "python3"))), None)
    return found + (wheels(os.path.dirname(python)) if python else [])


def open_library(names):
    given = os.environ.get("CLEAVE_CUDA_LIBRARIES")
    tries = [f"{given}/{name}" if given else name for name in names]
    if not given:
        tries += [os.path.join(f, name) for f in folders() for name in names if os.path.exists(os.path.join(f, name))]
    for path in tries:
        try:
            return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL), path
        except OSError:
            pass
    return None, f"{names[0]} is nowhere"


def version_of(name, library):
    if name == "NCCL":
        value = ctypes.c_int()
        library.ncclGetVersion(ctypes.byref(value))
        return f"{value.value // 10000}.{value.value // 100 % 100}.{value.value % 100}"
    function = library.cudnnGetVersion if name == "cuDNN" else library.cublasLtGetVersion
    function.restype = ctypes.c_size_t
    value = function()
    major = value // 10000
    return f"{major}.{value // 100 % 100}.{value % 100}"


def probe():
    """Prints the libraries and devices as JSON."""
    found = {"libraries": {}, "devices": []}
    for name, files in LIBRARIES.items():
        library, where = open_library(files)
        found["libraries"][name] = {"file": where, "version": None}
        if not library:
            continue
        try:
            if name == "driver":
                drive(library, found)
            else:
                found["libraries"][name]["version"] = version_of(name, library)
        except AttributeError:
            found["libraries"][name]["version"] = "of unknown version"
    print(json.dumps(found))


def drive(cuda, found):
    value, text = ctypes.c_int(), ctypes.create_string_buffer(256)
    cuda.cuDriverGetVersion(ctypes.byref(value))
    found["libraries"]["driver"]["version"] = f"{value.value // 1000}.{value.value % 1000 // 10}"
    status = cuda.cuInit(0)
    if status:
        found["why"] = f"cuInit gives {status}"
        return
    cuda.cuDeviceGetCount(ctypes.byref(value))
    for index in range(value.value):
        device, bytes_, major, minor = ctypes.c_int(), ctypes.c_size_t(), ctypes.c_int(), ctypes.c_int()
        cuda.cuDeviceGet(ctypes.byref(device), index)
        cuda.cuDeviceGetName(text, 256, device)
        cuda.cuDeviceTotalMem_v2(ctypes.byref(bytes_), device)
        cuda.cuDeviceGetAttribute(ctypes.byref(major), 75, device)
        cuda.cuDeviceGetAttribute(ctypes.byref(minor), 76, device)
        found["devices"].append({"name": text.value.decode(errors="replace"), "bytes": bytes_.value,
                                 "capability": major.value * 10 + minor.value})


if __name__ == "__main__":
    probe()
