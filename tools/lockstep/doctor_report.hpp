// SPDX-License-Identifier: Apache-2.0
// The doctor's findings for people and for programs. The JSON is one object:
//   schema "lockstep-doctor", version 1, lockstep {version, commit}, verdict and exit, strict
//   checks   [{name, looks_at, grade, summary}]            one for each check, in the order of the text
//   findings [{check, grade, what, ranks "0-7,9", hosts [...], why, mend}]
//   facts    {ranks, mpi, cuda, nodes [{host, ranks, cores, gpus, nics [{name, mbit_per_s, addresses}]}], remarks}
// A grade is "ok", "note", "slow" or "broken". Fields are added, never changed, within a version.
#pragma once

#include <string>

#include "tools/lockstep/doctor_checks.hpp"
#include "topology/base/error.hpp"
#include "topology/base/settings.hpp"

namespace lockstep::command {

// Broken is unfit; with `strict`, slow is too.
Exit exit_for(Grade worst, bool strict);

std::string report_text(const View& view, const Diagnosis& diagnosis);
std::string report_json(const View& view, const Diagnosis& diagnosis, bool strict);

// The table of LOCKSTEP_ variables, and the warnings about unknown ones. As JSON: {schema
// "lockstep-settings", version 1, settings [{name, value, from, default, allowed, meaning}], warnings}.
std::string settings_text(const Settings& settings);
std::string settings_json(const Settings& settings);

}  // namespace lockstep::command
