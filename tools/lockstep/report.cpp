// SPDX-License-Identifier: Apache-2.0
// Runs `lockstep report`: a file of a bench becomes a page. The page is made in bench/. This file adds the
// picture of the topology, and writes the page.
#include "tools/lockstep/report.hpp"

#include <cmath>
#include <filesystem>
#include <iostream>

#include "tools/lockstep/begin_session.hpp"
#include "tools/lockstep/command.hpp"
#include "tools/lockstep/read_run.hpp"
#include "tools/lockstep/topo_svg.hpp"
#include "tools/lockstep/write_file.hpp"
#include "topology/base/text.hpp"

namespace lockstep::command {
namespace {

using bench::BenchRun;
using bench::ReportParts;

// Returns the picture without a namespace, which a page does not need. Its height follows from its width.
std::string inlined(const Topology& topology) {
  const Picture picture = topo_picture(topology);
  std::string svg = picture.scene.svg(picture.width, picture.height, picture.title);
  const std::size_t end = svg.find('>');
  std::string_view head = std::string_view(svg).substr(0, end);
  const std::size_t box = head.find(" viewBox=");
  return text("<svg role=\"img\" width=\"", std::lround(picture.width), '"', head.substr(box),
              std::string_view(svg).substr(end));
}

BenchRun read(const std::string& paths) {
  BenchRun run = read_run(paths);
  if (run.rows.empty() && run.links.empty())
    throw Error(Code::file, text(printable(paths, 200), " has neither rows nor links"),
                "name a file of a run that has measured something");
  return run;
}

void refuse_if_input(const std::string& output, const std::string& launches) {
  for (const std::string& path : split(launches, ',')) {
    std::error_code ignored;
    if (std::filesystem::equivalent(path, output, ignored))
      throw Error(Code::usage, text("--output ", printable(output, 200), " is one of the files to read"),
                  "give the page a name of its own, for example report.html");
  }
}

}  // namespace

void add_topology(ReportParts& parts) {
  const std::string_view known = parts.run->topology;
  if (known.empty()) return;
  const auto bytes = from_hexadecimal(known);
  try {
    if (!bytes) throw Error(Code::file, "it is not hexadecimal", "write the file again");
    parts.topology = inlined(Topology::from_bytes(*bytes));
  } catch (const Error& error) {
    parts.topology_note = text("The topology in the file cannot be drawn: ", error.what());
  }
}

const Manual& report_manual() {
  static const Manual manual{
      .name = "report",
      .one_line = "make an HTML page of a bench: curves, ratios, links, topology",
      .synopsis = "lockstep report RUN.json[,...] --output FILE",
      .description =
          R"manual(Makes one HTML page of the files of `lockstep bench --json`. The page has a verdict and next steps;
curves of time and bandwidth with the baselines and the limit; ratios with their intervals; all
numbers; the links, slow ones outlined; the topology; and the configuration of the run. It is one
file without scripts that needs no network, for phones, wide screens, dark rooms and printers. Files
separated by commas are launches of the same bench. `lockstep compare` judges two runs.)manual",
      .options = {{"output", 'o', "FILE", "File of the page; it is replaced if it exists."}},
      .examples =
          "  mpirun -n 4 lockstep bench all_reduce,broadcast --json run.json\n"
          "  lockstep report run.json -o run.html\n"
          "      makes the page of one run\n"
          "  lockstep report a1.json,a2.json,a3.json -o run.html\n"
          "      makes the page of three launches\n",
      .exit_codes = "  0  the page is written\n  1  wrong use, or a file that cannot be read or written\n",
      .positional = true,
  };
  return manual;
}

Exit run_report(const ParsedOptions& parsed) {
  warn_of_unknown_variables();
  const std::vector<std::string>& files = parsed.words();
  if (files.size() != 1)
    throw Error(Code::usage, text(files.empty() ? "no file is" : text(files.size(), " files are"), " named"),
                "name one: lockstep report RUN.json -o run.html; launches of one run are separated by commas");
  const std::string output = parsed.value("output").value_or("");
  if (output.empty())
    throw Error(Code::usage, "the output file of the page is missing", "add --output FILE, for example -o report.html");
  refuse_if_input(output, files[0]);
  refuse_unwritable("--output", output);
  const BenchRun run = read(files[0]);
  if (!speaks()) return Exit::success;
  ReportParts parts{.run = &run};
  add_topology(parts);
  write_file(output, bench::report_page(parts));
  if (output == "-") return Exit::success;
  std::cout << bench::headline(parts) << "\nThe page is in " << printable(output, 200) << "\n";
  return Exit::success;
}

}  // namespace lockstep::command
