// SPDX-License-Identifier: Apache-2.0
// Reads the arrays of NumPy: .npy files, and .npz files, which are zip files of them.
#pragma once

#include <string>
#include <vector>

#include "runtime/data/files/file_array.hpp"

namespace lockstep::data {

// Reads the array in a file. Throws Error file for a file that is no .npy file, or has another order.
std::vector<FileArray> read_npy(const std::string& path);
// Reads arrays of a zip file, in the order of the names. Compressed ones are unpacked to memory.
std::vector<FileArray> read_npz(const std::string& path, const std::vector<std::string>& names);

// Returns the rows of the files' arrays: numbers for arrays of one axis, tensors for others.
template <class E>
Dataset<E> from_npy(const Files& files) {
  static_assert(column_count<Columns<E>> == 1,
                "lockstep: a .npy file has one array; zip() the data sets of several files, or use from_npz()");
  return Dataset<E>(std::make_shared<ArrayFilesStage<E>>(files.paths(), "from_npy", read_npy));
}

// Returns elements with a row of each array that is named. The names are in the order of the element's parts.
template <class E>
Dataset<E> from_npz(const Files& files, const std::vector<std::string>& names) {
  if (names.size() != column_count<Columns<E>>)
    throw Error(Code::usage,
                text("from_npz() of ", names.size(), " names for elements of ", column_count<Columns<E>>, " parts"),
                "name one array for each number or tensor of the element");
  return Dataset<E>(std::make_shared<ArrayFilesStage<E>>(
      files.paths(), "from_npz", [names](const std::string& path) { return read_npz(path, names); }));
}

}  // namespace lockstep::data
