// SPDX-License-Identifier: Apache-2.0
// Prints the doctor's findings for people and for programs. The JSON is one object:
//   schema "lockstep-doctor", version 1, lockstep {version, commit}, verdict and exit, strict
//   checks   [{name, looks_at, grade, summary}]            one for each check, in the order of the text
//   findings [{check, grade, what, ranks "0-7,9", hosts [...], why, fix}]
//   facts    {ranks, mpi, cuda, remarks, nodes [{host, ranks, cores, gpus, measured_mbit_per_s, nics}]}
//   nics     [{name, mbit_per_s, addresses}]
// measured_mbit_per_s arrived from another machine; 0: not measured. A grade is "ok", "note", "slow" or "broken".
// Within a version fields are added, never changed.
#pragma once

#include <string>

#include "tools/lockstep/doctor_checks.hpp"
#include "topology/base/error.hpp"
#include "topology/base/settings.hpp"

namespace lockstep::command {

// Returns the exit code: broken is unfit; with `strict`, slow is too.
Exit exit_for(Grade worst, bool strict);

// Return the report as text, and as the JSON above.
std::string report_text(const JobView& view, const Diagnosis& diagnosis);
std::string report_json(const JobView& view, const Diagnosis& diagnosis, bool strict);

// Returns the table of LOCKSTEP_ variables and warnings about unknown ones. Lines have at most `width` columns, unless
// a single word is longer. The JSON is {schema "lockstep-settings", version 1, settings [{name, value, from, default,
// allowed, agree, meaning}], warnings}.
std::string settings_text(const Settings& settings, std::size_t width);
std::string settings_json(const Settings& settings);

}  // namespace lockstep::command
