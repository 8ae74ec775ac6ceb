// SPDX-License-Identifier: Apache-2.0
// Reads and writes IDX files, the format of MNIST: big-endian arrays, which may be packed by gzip.
#pragma once

#include <string>
#include <vector>

#include "runtime/data/files/file_array.hpp"

namespace lockstep::data {

// Reads the array in a file. Throws Error file for a file that is no IDX file.
std::vector<FileArray> read_idx(const std::string& path);
// Writes one.
void write_idx_bytes(const std::string& path, DataType type, const TensorShape& shape,
                     std::span<const std::byte> elements);

// Returns the rows of the files' arrays: numbers for arrays of one axis, tensors for others.
template <class E>
Dataset<E> from_idx(const Files& files) {
  static_assert(column_count<Columns<E>> == 1,
                "lockstep: an IDX file has one array; zip() the data sets of several files");
  return Dataset<E>(std::make_shared<ArrayFilesStage<E>>(files.paths(), "from_idx", read_idx));
}

// Writes a tensor to a file, packed by gzip if the path ends with ".gz". A file at the path is replaced as a whole.
template <class T>
void write_idx(const std::string& path, const TensorSpan<T>& tensor) {
  write_idx_bytes(path, data_type_of<T>, tensor.shape(), std::as_bytes(tensor.span()));
}
template <class T>
void write_idx(const std::string& path, const Tensor<T>& tensor) {
  write_idx(path, TensorSpan<const T>(tensor.shape(), tensor.data()));
}

}  // namespace lockstep::data
