// SPDX-License-Identifier: Apache-2.0
// Sources that read files: files of NumPy and TensorFlow, positions at every element, and damaged files of each format.
#include <gtest/gtest.h>

#include <complex>
#include <fstream>
#include <limits>
#include <numeric>
#include <sstream>

#include "runtime/data/files/crc32c.hpp"
#include "runtime/data/files/csv.hpp"
#include "runtime/data/files/example.hpp"
#include "runtime/data/files/gzip.hpp"
#include "runtime/data/files/idx.hpp"
#include "runtime/data/files/lines.hpp"
#include "runtime/data/files/npy.hpp"
#include "runtime/data/files/tf_record.hpp"
#include "tests/support/files_of_no_bytes.hpp"
#include "tests/support/folder.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::test {
namespace {

using Texts = std::vector<std::string>;

std::string golden(const std::string& name) { return std::string(SOURCE_ROOT) + "/tests/runtime/data/files/" + name; }

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream all;
  all << file.rdbuf();
  return all.str();
}

// Leaves out files that a build without zlib cannot read.
Texts readable(Texts names) {
  const auto is_packed = [](const std::string& name) { return name.ends_with(".gz") || name.starts_with("deflated"); };
  if (!data::has_zlib()) std::erase_if(names, is_packed);
  return names;
}
std::string packed(const std::string& content) { return data::has_zlib() ? data::pack_gzip(content, "") : ""; }

template <class E>
std::vector<E> elements_of(DatasetIterator<E> iterator) {
  std::vector<E> all;
  while (std::optional<E> element = iterator.next()) all.push_back(std::move(*element));
  return all;
}
template <class E>
std::vector<E> elements_of(const Dataset<E>& data) {
  return elements_of(data.open());
}

// Goes on from each element in an iterator that knows nothing of the first one.
template <class Make>
void expect_positions(const Make& make) {
  auto iterator = make().open();
  const Bytes beginning = iterator.position();
  const auto all = elements_of(std::move(iterator));
  ASSERT_FALSE(all.empty());
  for (std::size_t read = 0; read <= all.size(); ++read) {
    auto first = make().open();
    first.seek(beginning);  // Another iterator would have another order.
    for (std::size_t i = 0; i < read; ++i) first.next();
    auto second = make().open();
    for (std::size_t i = 0; i < (read * 7) % (all.size() + 1); ++i) second.next();
    second.seek(first.position());
    ASSERT_TRUE(elements_of(std::move(second)) ==
                std::vector(all.begin() + static_cast<std::ptrdiff_t>(read), all.end()))
        << "after " << read;
  }
}

// --- Text elements

TEST(Texts, GoThroughStages) {
  const auto words = data::from_tensor_slices(Texts{"a", "", "ccc", "dd", "e"});
  EXPECT_EQ(elements_of(words), (Texts{"a", "", "ccc", "dd", "e"}));
  EXPECT_EQ(elements_of(words.skip(1).take(3).concatenate(words.take(1))), (Texts{"", "ccc", "dd", "a"}));
  const auto kept = words.filter([](const std::string& word) { return !word.empty(); }).cache().repeat(2).prefetch(2);
  EXPECT_EQ(elements_of(kept), (Texts{"a", "ccc", "dd", "e", "a", "ccc", "dd", "e"}));
  const auto lengths = data::zip(words, data::range(5)).map([](const std::string& word, std::int64_t i) {
    return static_cast<std::int64_t>(word.size()) + 10 * i;
  });
  EXPECT_EQ(lengths.batch(5).open().next(), row<std::int64_t>({1, 10, 23, 32, 41}));
  auto shuffled = elements_of(words.shuffle(5));
  std::ranges::sort(shuffled);
  EXPECT_EQ(shuffled, (Texts{"", "a", "ccc", "dd", "e"}));
}

TEST(Texts, AreInThePositionsOfShuffles) {
  expect_positions([] {
    return data::zip(data::from_tensor_slices(Texts{"a", "", "ccc", "dd", "e"}), data::range(5))
        .filter([](const std::string&, std::int64_t i) { return i != 3; })
        .shuffle(3, {.seed = 4})
        .repeat(2);
  });
}

// --- Names of files

TEST(Files, AreSortedPathsOfAPattern) {
  const Folder folder;
  for (const char* const name : {"b.txt", "a.txt", "c.csv", "[d].txt"}) folder.write(name, name);
  folder.write("sub.txt/x", "");
  const std::string root = folder.path().string() + "/";
  EXPECT_EQ(data::glob(root + "*.txt"), (Texts{root + "[d].txt", root + "a.txt", root + "b.txt"}));
  EXPECT_EQ(elements_of(data::list_files(root + "?.txt")), (Texts{root + "a.txt", root + "b.txt"}));
  EXPECT_EQ(elements_of(data::from_lines(root + "[d].txt")), Texts{"[d].txt"}) << "a path is no pattern";
  EXPECT_EQ(elements_of(data::from_lines({root + "c.csv", root + "a.txt"})), (Texts{"c.csv", "a.txt"}));
  EXPECT_PRED2(holds, refusal([&] { data::from_lines(root + "*.idx"); }, Code::file), "no file matches");
  EXPECT_PRED2(holds, refusal([] { data::list_files(Texts()); }, Code::usage), "a source of no files");
  const auto lines = data::from_lines(root + "?.txt");
  EXPECT_EQ(lines.describe(), "from_lines(\"a.txt\" and 1 more file)");
  const auto& stage = dynamic_cast<const data::FileStage<data::Columns<std::string>>&>(*lines.stage());
  EXPECT_EQ(elements_of(Dataset<std::string>(stage.with_files({stage.files()[1]}))), Texts{"b.txt"});
  EXPECT_EQ(elements_of(Dataset<std::string>(stage.with_files({}))), Texts());
}

TEST(Files, MustBeThere) {
  const Folder folder;
  const std::string root = folder.path().string();
  const auto missing = data::from_lines(root + "/none");
  EXPECT_PRED2(holds, refusal([&] { missing.open().next(); }, Code::file), "cannot be read: No such file or directory");
  EXPECT_PRED2(holds, refusal([&] { data::from_npy<float>(root); }, Code::file), "is not a regular file");
}

// --- Lines

TEST(Lines, HaveNoEnds) {
  const Folder folder;
  folder.write("1", "one\r\n\n three \n");
  folder.write("2", "");
  folder.write("3", "last");
  folder.write("4", data::has_zlib() ? packed("packed\nli") + packed("nes\n") : "packed\nlines\n");
  const std::string root = folder.path().string();
  const auto make = [&] { return data::from_lines(root + "/*"); };
  EXPECT_EQ(elements_of(make()), (Texts{"one", "", " three ", "last", "packed", "lines"}));
  EXPECT_EQ(make().length(), data::unknown_length);
  expect_positions(make);
}

TEST(Lines, MayBeLongerThanABuffer) {
  const Folder folder;
  const std::string longest(1'000'000, 'x');
  folder.write("long", "a\n" + longest + "\nb\n" + longest);
  const auto make = [&] { return data::from_lines(folder.path().string() + "/long"); };
  EXPECT_TRUE(elements_of(make()) == (Texts{"a", longest, "b", longest}));
  expect_positions(make);
}

// --- IDX

TEST(IdxFiles, OfMnistAreRead) {
  for (const std::string& ending : readable({".idx", ".idx.gz"})) {
    SCOPED_TRACE(ending);
    const auto images = data::from_idx<Tensor<std::uint8_t>>(golden("images" + ending));
    const auto labels = data::from_idx<std::uint8_t>(golden("labels" + ending));
    EXPECT_EQ(images.length(), 5);
    EXPECT_EQ(elements_of(labels), (std::vector<std::uint8_t>{7, 2, 1, 0, 4}));
    const auto batch = data::zip(images, labels).skip(3).batch(2).open().next();
    std::vector<std::uint8_t> pixels(24);
    std::iota(pixels.begin(), pixels.end(), std::uint8_t{36});
    EXPECT_EQ(std::get<0>(*batch), Tensor<std::uint8_t>({2, 4, 3}, pixels));
  }
  EXPECT_EQ(elements_of(data::from_idx<std::int16_t>(golden("shorts.idx"))), (std::vector<std::int16_t>{-2, 300, 7}));
  EXPECT_EQ(data::from_idx<Tensor<double>>(golden("doubles.idx")).batch(2).open().next(),
            Tensor<double>({2, 2}, {1.5, -2, 1e300, 0}));
}

TEST(IdxFiles, AreWritten) {
  const Folder folder;
  const std::string path = folder.path().string() + "/x.idx";
  Tensor<float> values({3, 2}, {1.5F, -2, 3, 4, 5, 1e-30F});
  for (const std::string& ending : readable({"", ".gz"})) {
    data::write_idx(path + ending, values);
    EXPECT_EQ(data::from_idx<Tensor<float>>(path + ending).batch(3).open().next(), values);
  }
  EXPECT_EQ(content_of(path).size(), 12 + 24U);
  EXPECT_EQ(content_of(path + ".gz").starts_with("\x1f\x8b"), data::has_zlib());
  std::vector<std::uint8_t> pixels(60);
  std::iota(pixels.begin(), pixels.end(), std::uint8_t{0});
  data::write_idx(path, Tensor<std::uint8_t>({5, 4, 3}, pixels));
  EXPECT_EQ(content_of(path), content_of(golden("images.idx")));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), data::has_zlib() ? 2 : 1)
      << "drafts";
  EXPECT_PRED2(holds, refusal([&] { data::write_idx(path, row<std::int64_t>({1})); }, Code::usage), "elements i64");
  EXPECT_PRED2(holds, refusal([&] { data::write_idx(path + "/y", row<float>({1})); }, Code::file), "cannot be written");
}

// --- NumPy

template <class T>
void expect_npy(const std::string& name, std::initializer_list<T> values) {
  EXPECT_EQ(elements_of(data::from_npy<T>(golden(name + ".npy"))), std::vector<T>(values)) << name;
}

TEST(NpyFiles, OfAllTypesAreRead) {
  expect_npy<bool>("bool", {false, true, true, true, true});
  expect_npy<std::int8_t>("int8", {-2, -1, 0, 1, 2});
  expect_npy<std::int16_t>("int16", {-2, -1, 0, 1, 2});
  expect_npy<std::int32_t>("int32", {-2, -1, 0, 1, 2});
  expect_npy<std::int64_t>("int64", {-2, -1, 0, 1, 2});
  expect_npy<std::uint8_t>("uint8", {0, 1, 2, 3, 4});
  expect_npy<std::uint16_t>("uint16", {0, 1, 2, 3, 4});
  expect_npy<std::uint32_t>("uint32", {0, 1, 2, 3, 4});
  expect_npy<std::uint64_t>("uint64", {0, 1, 2, 3, 4});
  expect_npy<f16>("float16", {f16(-2.F), f16(-1.F), f16(0.F), f16(1.F), f16(2.F)});
  expect_npy<bf16>("bfloat16", {bf16(-2.F), bf16(-1.F), bf16(0.F), bf16(1.F), bf16(2.F)});
  expect_npy<float>("float32", {-2, -1, 0, 1, 2});
  expect_npy<double>("float64", {-2, -1, 0, 1, 2});
  expect_npy<std::complex<float>>("complex64", {-2, -1, 0, 1, 2});
  expect_npy<std::complex<double>>("complex128", {-2, -1, 0, 1, 2});
  for (const char* const version : {"version_1", "version_2", "version_3"})
    expect_npy<std::int32_t>(version, {-2, -1, 0, 1});
  EXPECT_EQ(data::from_npy<Tensor<float>>(golden("matrix.npy")).batch(3).open().next(),
            Tensor<float>({3, 2, 2}, {-2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(NpyFiles, AreOneSequenceOfRows) {
  const auto make = [] {
    return data::from_npy<std::int32_t>({golden("version_1.npy"), golden("int32.npy"), golden("version_2.npy")});
  };
  EXPECT_EQ(elements_of(make()), (std::vector<std::int32_t>{-2, -1, 0, 1, -2, -1, 0, 1, 2, -2, -1, 0, 1}));
  EXPECT_EQ(make().describe(), "from_npy(\"version_1.npy\" and 2 more files, 13 rows)");
  EXPECT_EQ(make().skip(3).batch(7).open().next(), row<std::int32_t>({1, -2, -1, 0, 1, 2, -2}));
  expect_positions(make);
  expect_positions([&] { return make().shuffle(4, {.seed = 1}); });
  expect_positions([&] { return make().shuffle(20, {.seed = 2}).repeat(2); });
  auto all = elements_of(make().shuffle(13));
  std::ranges::sort(all);
  EXPECT_EQ(std::accumulate(all.begin(), all.end(), 0), -4);
  EXPECT_EQ(all.size(), 13U);
}

TEST(NpyFiles, AreNotReadAfterAChange) {
  const Folder folder;
  const std::string path = folder.path().string() + "/a.npy";
  std::filesystem::copy_file(golden("int32.npy"), path);
  const auto rows = data::from_npy<std::int32_t>(path);
  EXPECT_EQ(rows.open().next(), -2);
  std::filesystem::rename(path, path + ".old");
  folder.write("a.npy", "another file");
  EXPECT_EQ(rows.open().next(), -2) << "the old file is mapped";
  std::filesystem::rename(path + ".old", path);
  std::filesystem::resize_file(path, 10);
  EXPECT_PRED2(holds, refusal([&] { rows.open().next(); }, Code::file), "has been changed while it was read");
}

TEST(NpzFiles, GiveRowsOfTheirArrays) {
  for (const std::string& name : readable({"stored.npz", "deflated.npz"})) {
    SCOPED_TRACE(name);
    const auto make = [&] { return data::from_npz<std::tuple<Tensor<float>, std::int64_t>>(golden(name), {"x", "y"}); };
    EXPECT_EQ(make().skip(2).batch(2).open().next(),
              std::tuple(Tensor<float>({2, 3}, {4, 5, 6, 7, 8, 9}), row<std::int64_t>({0, 1})));
    EXPECT_EQ(elements_of(data::from_npz<std::int64_t>(golden(name), {"y"})),
              (std::vector<std::int64_t>{-2, -1, 0, 1}));
    expect_positions([&] { return make().shuffle(3, {.seed = 3}); });
    EXPECT_PRED2(holds, refusal([&] { data::from_npz<float>(golden(name), {"z"}); }, Code::usage),
                 "has no array \"z\" -> it has x, y");
  }
}

// --- CSV

using Person = std::tuple<std::string, int, float>;

TEST(CsvFiles, HaveQuotesAndTypes) {
  const Folder folder;
  folder.write("1.csv", "\xef\xbb\xbfname,\"age\",height\r\n\"Kim, \"\"K\"\"\", 41 ,1.5\r\n\r\nOl,+2,-1e-3\n");
  folder.write("2.csv", "height,name,age\n1e-60,\"two\nlines\",-3\ninf,,0");
  const std::string root = folder.path().string();
  const auto make = [&] { return data::from_csv<Person>(root + "/*.csv", {.columns = {"name", "age", "height"}}); };
  EXPECT_EQ(elements_of(make()), (std::vector<Person>{{"Kim, \"K\"", 41, 1.5F},
                                                      {"Ol", 2, -1e-3F},
                                                      {"two\nlines", -3, 0.F},
                                                      {"", 0, std::numeric_limits<float>::infinity()}}));
  expect_positions(make);
  expect_positions([&] { return make().shuffle(2, {.seed = 1}); });
  const auto ages = data::from_csv<std::uint8_t>(root + "/1.csv", {.columns = {"age"}});
  EXPECT_EQ(ages.batch(2).open().next(), row<std::uint8_t>({41, 2}));
  EXPECT_EQ(ages.describe(), "from_csv(\"1.csv\", columns age)");
}

// Numbers beyond the range of their type are zero if they are too small, and an error if they are too large.
TEST(CsvFiles, HaveTinyNumbersButNoLargeOnes) {
  const std::string zeros(400, '0');
  for (const std::string sign : {"", "-"}) {
    double number = 1;
    for (const std::string& tiny :
         Texts{"1e-400", "0." + zeros + "1", "1" + zeros + "e-900", "0." + zeros + "1e+5", "1E-99999999999999999999"}) {
      EXPECT_TRUE(data::parse_csv_number(sign + tiny, number)) << sign << tiny;
      EXPECT_EQ(number, 0) << sign << tiny;
      EXPECT_EQ(std::signbit(number), sign == "-") << sign << tiny;
    }
    for (const std::string& large :
         Texts{"1e400", "1" + zeros, "1" + zeros + ".5e-1", "0.001e+900", "1E99999999999999999999"})
      EXPECT_FALSE(data::parse_csv_number(sign + large, number)) << sign << large;
  }
}

TEST(CsvFiles, MayLackAHeader) {
  const Folder folder;
  folder.write("a.tsv", "1\ttrue\t0.5\n2\t0\t7\n");
  const std::string path = folder.path().string() + "/a.tsv";
  const data::CsvOptions options{.has_header = false, .separator = '\t'};
  EXPECT_EQ(elements_of(data::from_csv<std::tuple<std::int64_t, bool, bf16>>(path, options)),
            (std::vector<std::tuple<std::int64_t, bool, bf16>>{{1, true, bf16(0.5F)}, {2, false, bf16(7.F)}}));
  const data::CsvOptions chosen{.columns = {"2", "0"}, .has_header = false, .separator = '\t'};
  expect_positions([&] { return data::from_csv<std::pair<double, int>>(path, chosen); });
  EXPECT_EQ(elements_of(data::from_csv<std::pair<double, int>>(path, chosen)),
            (std::vector<std::pair<double, int>>{{0.5, 1}, {7, 2}}));
}

// gzip and Python read such files, also those with a member behind the zeros.
TEST(GzipFiles, MayEndWithZeros) {
  if (!data::has_zlib()) GTEST_SKIP() << lacks("zlib, which this build has not");
  const Folder folder;
  const std::string zeros(300'000, '\0');
  folder.write("lines.gz", packed("a\nb\n") + zeros + packed("c\n") + zeros);
  EXPECT_EQ(elements_of(data::from_lines((folder.path() / "lines.gz").string())), (Texts{"a", "b", "c"}));
  const std::string whole = content_of(golden("images.idx.gz"));
  folder.write("images.idx.gz", whole + zeros);
  EXPECT_EQ(elements_of(data::from_idx<Tensor<std::uint8_t>>((folder.path() / "images.idx.gz").string())),
            elements_of(data::from_idx<Tensor<std::uint8_t>>(golden("images.idx.gz"))));
}

// --- TFRecord

// A program may go on after an error, and close the file.
TEST(TfRecordFiles, DoNotAppearAfterAFailedWrite) {
  const Folder folder;
  const std::string path = (folder.path() / "file").string();
  {
    data::TfRecordWriter writer(path);
    data::TfRecordWriter other(path);
    writer.write("whole");
    other.write("other");
    {
      const FilesOfNoBytes full_disk;
      EXPECT_PRED2(holds, refusal([&] { writer.write("cut"); }, Code::file), "cannot be written: File too large");
    }
    EXPECT_PRED2(holds, refusal([&] { writer.close(); }, Code::file), "cannot be written: File too large");
    EXPECT_FALSE(std::filesystem::exists(path));
    other.close();
  }
  EXPECT_EQ(elements_of(data::from_tf_records(path)), Texts{"other"});
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1) << "no draft is left";
}

TEST(TfRecords, OfTensorFlowAreRead) {
  for (const std::string& name : readable({"examples.tfrecord", "examples.tfrecord.gz"})) {
    SCOPED_TRACE(name);
    const auto make = [&] { return data::from_tf_records(golden(name)); };
    const auto examples = elements_of(make());
    ASSERT_EQ(examples.size(), 4U);
    for (std::size_t i = 0; i < examples.size(); ++i) {
      const auto number = static_cast<std::int64_t>(i);
      const data::Example example = data::parse_example(examples[i]);
      const auto x = static_cast<float>(i);
      EXPECT_EQ(example.floats("x"), (std::vector{x / 2, -x}));
      EXPECT_EQ(example.ints("y"), (std::vector<std::int64_t>{number, -number, std::int64_t{1} << 40}));
      EXPECT_EQ(example.bytes("z"), (Texts{std::string(i, 'a'), std::string("\0\xff", 2)}));
      EXPECT_TRUE(example.floats("none").empty());
      EXPECT_EQ(data::parse_example(example.encode()), example);
    }
    expect_positions(make);
    expect_positions([&] { return make().shuffle(3, {.seed = 1}).repeat(2); });
  }
}

TEST(TfRecords, HaveChecksumsOfCastagnoli) {
  EXPECT_EQ(data::crc32c("123456789"), 0xe3069283U);
  std::string bytes;
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(data::crc32c(bytes), data::crc32c_by_tables(bytes)) << bytes.size();
    bytes += static_cast<char>(37 * i);
  }
}

TEST(TfRecords, AreWritten) {
  const Folder folder;
  const std::string path = folder.path().string() + "/a.tfrecord";
  data::TfRecordWriter writer(path);
  for (const std::string& record : elements_of(data::from_tf_records(golden("examples.tfrecord"))))
    writer.write(record);
  EXPECT_FALSE(std::filesystem::exists(path)) << "it appears as a whole";
  writer.close();
  EXPECT_EQ(content_of(path), content_of(golden("examples.tfrecord")));
  // The bytes of this length are those of a gzip file.
  const std::string long_record(0x088b1f, 'x');
  data::TfRecordWriter other(path);
  other.write(long_record);
  other.close();
  EXPECT_TRUE(elements_of(data::from_tf_records(path)) == Texts{long_record});
}

TEST(Examples, MayBePackedOrNot) {
  // A features message with the entry "x" of unpacked floats 1 and 2, and an unknown field.
  const std::string list = std::string("\x0d\x00\x00\x80\x3f\x0d\x00\x00\x00\x40", 10);
  const std::string feature = "\x12\x0a" + list;
  const std::string entry = "\x0a\x01x\x12\x0c" + feature;
  const std::string features = std::string("\x0a\x11") + entry + "\x38\x05";
  const data::Example example = data::parse_example("\x0a\x15" + features);
  EXPECT_EQ(example.floats("x"), (std::vector{1.F, 2.F}));
  EXPECT_PRED2(holds, refusal([&] { example.ints("x"); }, Code::usage), "without ints(\"x\") -> it has floats(\"x\")");
  EXPECT_PRED2(holds, refusal([&] { data::parse_example("\x0a\x15" + features.substr(0, 9)); }, Code::file),
               "byte 2 of a tf.train.Example: the bytes end too early");
}

// --- Damaged files

struct Damage {
  std::string file;     // Is the name of a whole file.
  std::string content;  // Is that of the damaged one.
  std::string error;    // Is a part of the error's text.
};

// Reads all of a file by its ending.
void read_by_ending(const std::string& path) {
  const auto ends_with = [&](std::string_view ending) { return path.ends_with(ending); };
  if (ends_with(".idx") || ends_with(".idx.gz")) elements_of(data::from_idx<Tensor<std::uint8_t>>(path));
  if (ends_with(".npy")) elements_of(data::from_npy<Tensor<float>>(path));
  if (ends_with(".npz")) elements_of(data::from_npz<std::pair<Tensor<float>, std::int64_t>>(path, {"x", "y"}));
  if (ends_with(".csv")) elements_of(data::from_csv<std::pair<int, float>>(path));
  if (ends_with(".tfrecord") || ends_with(".tfrecord.gz")) elements_of(data::from_tf_records(path));
}

std::string with(std::string content, std::size_t at, const std::string& bytes) {
  return content.replace(at, bytes.size(), bytes);
}

std::vector<Damage> damages() {
  const auto whole = [](const std::string& name) { return content_of(golden(name)); };
  const auto cut = [&](const std::string& name, std::size_t bytes) { return whole(name).substr(0, bytes); };
  const std::string huge(4, '\xff');
  const std::string npy = whole("matrix.npy");
  const std::string stored = whole("stored.npz");
  const std::string deflated = whole("deflated.npz");
  const std::size_t entry = stored.find("PK\x01\x02");
  const std::size_t packed_entry = deflated.find("PK\x01\x02");
  const auto big = [](std::size_t bytes) { return std::string("\0\0\x08\x01", 4) + std::string(bytes, '\0'); };
  return {
      {"empty.idx", "", "byte 0: the file ends in the header"},
      {"text.idx", "some text", "byte 0: these are not the first bytes of an IDX file"},
      {"axes.idx", with(whole("images.idx"), 3, "\x11"), "byte 3: an array of 17 axes"},
      {"header.idx", cut("images.idx", 9), "byte 9: the file ends in the header"},
      {"cut.idx", cut("images.idx", 75), "byte 4: the header says more elements than the file has"},
      {"long.idx", whole("images.idx") + "x", "byte 76: the file goes on behind its array"},
      {"huge.idx", with(whole("images.idx"), 4, huge + huge + huge), "more elements than the file has"},
      {"huge.idx.gz", packed(with(whole("images.idx"), 4, huge)), "more elements than the file has"},
      {"cut.idx.gz", packed(cut("images.idx", 75)), "the unpacked file ends, and its header says 76 bytes"},
      {"long.idx.gz", packed(whole("images.idx") + "x"), "the file goes on behind its array"},
      {"end.idx.gz", cut("images.idx.gz", 90), "the compressed data end too early"},
      {"bomb.idx.gz", packed(big(1 << 20)), "byte 8: the file goes on behind its array"},
      {"damaged.idx.gz", with(whole("images.idx.gz"), 86, "abc"), "is damaged behind"},
      {"empty.npy", "", "byte 0: these are not the first bytes of a .npy file"},
      {"cut.npy", npy.substr(0, 170), "byte 170: the file ends before the last element"},
      {"long.npy", npy + "xx", "byte 176: the file goes on behind its array"},
      {"header.npy", npy.substr(0, 90), "byte 90: the file ends in the header"},
      {"version.npy", with(npy, 6, "\x04"), "byte 6: version 4"},
      {"huge.npy", with(npy, npy.find("(3, 2, 2), }"), "(99999999,)}"), "the file ends before the last element"},
      {"overflow.npy", with(npy, npy.find("(3, 2, 2), }"), "(4611686018427387904,8)}"),
       "the file ends before the last"},
      {"length.npy", with(npy, npy.find("(3"), "(-3"), "the shape has no length here"},
      {"key.npy", with(npy, npy.find("descr"), "decsr"), "unknown key"},
      {"fortran.npy", whole("fortran.npy"), "has an array in Fortran's order -> write it in C's order"},
      {"big_endian.npy", whole("big_endian.npy"), "has elements of type \">f4\" -> write little-endian numbers"},
      {"texts.npy", whole("texts.npy"), "has elements of type \"<U2\" -> write numbers"},
      {"fields.npy", whole("fields.npy"), "the elements have fields"},
      {"type.npy", whole("float64.npy"), "has elements of type f64, not f32"},
      {"scalar.npy", whole("scalar.npy"), "has a scalar, which has no rows"},
      {"empty.npz", "", "byte 0: the file is too short for a zip file"},
      {"cut.npz", stored.substr(0, stored.size() - 30), "a zip file's end is not here"},
      {"directory.npz", with(stored, entry, "PK\x01\x03"), "an entry of the zip file's directory is not here"},
      {"offset.npz", with(stored, entry + 42, std::string("\xff\xff\xff\x7f", 4)), "the zip file ends too early"},
      {"encrypted.npz", with(stored, entry + 8, "\x01"), "the member is encrypted"},
      {"method.npz", with(stored, entry + 10, "\x0c"), "the member is packed by method 12"},
      {"deflated_bomb.npz", with(deflated, packed_entry + 24, std::string("\x00\x00\x00\x40", 4)),
       "has too few compressed bytes for"},
      {"deflated_behind.npz", with(deflated, packed_entry + 24, std::string("\x90\x00\x00\x00", 4)),
       "goes on behind its 144 bytes"},
      {"deflated_before.npz", with(deflated, packed_entry + 24, std::string("\x00\x01\x00\x00", 4)),
       "ends before its 256 bytes"},
      {"deflated_checksum.npz", with(deflated, packed_entry + 16, "abcd"), "has another checksum"},
      {"empty.csv", "", "empty.csv:1: the file has no header"},
      {"number.csv", "a,b\n1,2\n3,x\n", "number.csv:3:2: \"x\" is no number of type f32 for the column \"b\""},
      {"blank.csv", "a,b\n,2\n", "blank.csv:2:1: \"\" is no number of type i32"},
      {"range.csv", "a,b\n\n\n3000000000,2\n", "range.csv:4:1: \"3000000000\" is no number of type i32"},
      {"columns.csv", "a,b\n1,2\n1,2,3\n", "columns.csv:3: 3 columns in a table of 2"},
      {"header.csv", "a,b,c\n1,2,3\n", "header.csv:1: the table has 3 columns, and elements have 2 parts"},
      {"open.csv", "a,b\n1,\"2\n", "open.csv:2: the quote before column 2 does not end"},
      {"behind.csv", "a,b\n\"1\"2,3\n", "behind.csv:2: column 1 goes on behind its last quote"},
      {"within.csv", "a,b\n1\"2,3\n", "within.csv:2: column 1 has a quote within a text"},
      {"text.tfrecord", "some text, and more of it", "byte 0: the bytes of the length"},
      {"length.tfrecord", cut("examples.tfrecord", 7), "byte 0: the file ends in the TFRecord"},
      {"cut.tfrecord", cut("examples.tfrecord", 100), "byte 83: the file ends in the TFRecord"},
      {"checksum.tfrecord", with(whole("examples.tfrecord"), 30, "#"), "byte 0: the bytes of the TFRecord"},
      {"end.tfrecord.gz", cut("examples.tfrecord.gz", 150), "the compressed data end too early"},
  };
}

TEST(DamagedFiles, AreRefusedWithTheirPlace) {
  const Folder folder;
  for (const Damage& damage : damages()) {
    if (readable({damage.file}).empty()) continue;
    SCOPED_TRACE(damage.file);
    folder.write(damage.file, damage.content);
    const std::string path = folder.path().string() + "/" + damage.file;
    const std::string error = refusal([&] { read_by_ending(path); }, {Code::file, Code::corrupt, Code::usage});
    EXPECT_PRED2(holds, error, damage.error);
    EXPECT_PRED2(holds, error, damage.file);
    EXPECT_PRED2(holds, error, " -> ");
  }
}

TEST(DamagedFiles, MayBePackedInABuildWithoutZlib) {
  if (data::has_zlib()) GTEST_SKIP() << lacks("a build without zlib");
  for (const char* const name : {"images.idx.gz", "examples.tfrecord.gz", "deflated.npz"})
    EXPECT_PRED2(holds, refusal([&] { read_by_ending(golden(name)); }, Code::file), "was built without zlib");
}

TEST(DamagedFiles, GiveTheElementsBeforeTheFault) {
  const Folder folder;
  folder.write("a.csv", "a,b\n1,2\n3,4\n5,x\n7,8\n");
  const auto rows = data::from_csv<std::pair<std::string, float>>(folder.path().string() + "/a.csv");
  auto iterator = rows.open();
  EXPECT_EQ(iterator.next(), std::pair(std::string("1"), 2.F));
  EXPECT_EQ(iterator.next(), std::pair(std::string("3"), 4.F));
  const Bytes before = iterator.position();
  for (int i = 0; i < 2; ++i) EXPECT_PRED2(holds, refusal([&] { iterator.next(); }, Code::file), "a.csv:4:2:");
  iterator.seek(before);
  EXPECT_PRED2(holds, refusal([&] { iterator.next(); }, Code::file), "a.csv:4:2:") << "line numbers are in positions";
}

TEST(DamagedFiles, MustFitEachOther) {
  const auto refused = [](const std::function<void()>& make) { return refusal(make, {Code::file, Code::usage}); };
  EXPECT_PRED2(holds, refused([] {
                 data::from_npy<Tensor<float>>({golden("matrix.npy"), golden("float32.npy")});
               }),
               "has rows of shape ()");
  EXPECT_PRED2(holds, refused([] { data::from_npy<float>(golden("matrix.npy")); }), "so its rows are no numbers");
  EXPECT_PRED2(holds, refused([] { data::from_npz<float>(golden("stored.npz"), {"x", "y"}); }), "of 2 names");
  EXPECT_PRED2(holds, refused([] { data::from_csv<int>("a", {.columns = {"x", "y"}}); }), "of 2 columns");
}

}  // namespace
}  // namespace lockstep::test
