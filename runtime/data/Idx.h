// The IDX format of the MNIST files: big-endian magic 0x000008NN (unsigned bytes, NN dimensions), NN 32-bit sizes,
// data.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace cleave {

struct IdxArray {
  std::vector<int64_t> dims;
  std::vector<uint8_t> data; ///< as many bytes as the product of the dims
};

/// Decodes a whole IDX file. `name` stands in error messages. Throws userError naming the rule and the value found.
IdxArray parseIdx(std::span<const uint8_t> bytes, unsigned rank, const std::string &name);

/// The reverse: the bytes of an IDX file.
std::vector<uint8_t> encodeIdx(const IdxArray &array);

/// Reads `path` or, when that does not exist, `path`.gz. Throws userError naming the file.
IdxArray readIdx(const std::string &path, unsigned rank);

/// A whole file, decompressed when it begins with gzip's magic. Throws userError naming the file, also where it has more
/// than `most` bytes.
std::vector<uint8_t> readMaybeGzip(const std::string &path, uint64_t most);

} // namespace cleave
