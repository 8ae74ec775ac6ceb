#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bugs that somebody could make in the engine and in the node's protocol, one at a time, in a copy of the source: each must be found by
the searches that CI runs, with the seeds and sizes that they have there. Prints which test found each.

  seeded_bugs.py --source S [--only N,M] [--threads]     (--threads: those that only ThreadSanitizer sees, with it)
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time

ENGINE = "collectives/engine/"
NODE = "collectives/node/"

# What the bug is, the file, what is written there, and what a mistaken hand would have written.
BUGS = [
    # Agreement, and what members tell each other.
    ("calls that differ are not compared", ENGINE + "call_history.cpp", "  if (record->signature == theirs.signature && record->plan->choice_number() == theirs.choice_number) return;\n", "  if (record != nullptr) return;\n"),
    ("a word about a call of before is kept as one about a later call", ENGINE + "control_dispatcher.cpp", "  if (message.call.number > parts_.history.last_started()) {\n", "  if (message.call.number >= parts_.history.last_started()) {\n"),
    ("early words are dropped", ENGINE + "control_dispatcher.cpp", "    parts_.agreement.keep(peer, message.call);\n", ""),
    ("early words are not compared", ENGINE + "core.cpp", "    history_.compare(peer, theirs);\n", ""),
    ("not all are asked", ENGINE + "agreement.cpp", "distance *= 2", "distance *= 4"),
    ("nobody is asked", ENGINE + "agreement.cpp", "  kinds_.insert(kind);\n  return true;\n", "  kinds_.insert(kind);\n  return false;\n"),
    ("data moves before all have agreed", ENGINE + "runner.cpp", "  if (operation.is_agreeing()) return false;\n", ""),
    ("a call ends before its words are on their way", ENGINE + "operation.hpp", "(agreements_missing | agreements_held) != 0", "agreements_missing != 0"),
    ("what left is forgotten", ENGINE + "departed_members.hpp", "return !last_calls_.empty(); }", "return false; }"),
    ("who left in this very call is waited for", ENGINE + "departed_members.cpp", "    if (!last || *last >= operation.number) continue;\n", "    if (!last || *last + 1 >= operation.number) continue;\n"),
    ("calls under way are not looked at when somebody leaves", ENGINE + "control_dispatcher.cpp", "  for (const Operation* operation : parts_.operations.active()) parts_.departed.check(*operation);\n", ""),
    ("who fails does not tell", ENGINE + "failure_handler.cpp", "if (tell_others)", "if (false)"),
    ("questions are not answered", ENGINE + "control_dispatcher.cpp", "  parts_.transport.send_control(peer, to_bytes(parts_.history.answer(message, parts_.operations.oldest_collective())));\n", ""),
    ("answers are not kept", ENGINE + "stall_detector.cpp", "operation->answers[static_cast<std::size_t>(peer)] = answer;", "continue;"),
    ("the last word of one that fails names nobody", ENGINE + "control_dispatcher.cpp", "text(identity_.members.number_of(peer), \": \",\n                                                                             message.reason.text)", "message.reason.text"),
    ("a wait that moved goes on counting", ENGINE + "core.cpp", "  if (moved && operation.stall.since != StallWatch::unknown) stalls_.restart(operation);\n", ""),
    # Rounds, segments, lanes.
    ("a repeated round is done once more", ENGINE + "runner.cpp", "  if (++part.lap < round.times) return;\n", "  if (part.lap++ < round.times) return;\n"),
    ("a lane is never free again", ENGINE + "runner.cpp", "    ++queue_of(operation, part).serving;\n", ""),
    ("parts do not wait for their turn", ENGINE + "runner.cpp", "  if (queue_of(operation, part).serving != part.turn) return false;\n", ""),
    ("segments of one lane are done out of order", ENGINE + "runner.cpp", "  part.segment += static_cast<int>(operation.parts.size());\n", "  part.segment += 1;\n"),
    ("a segment begins where the last one did", ENGINE + "binding.hpp", "static_cast<std::size_t>(part.segment) * plan.segment * bytes", "static_cast<std::size_t>(part.segment > 0) * plan.segment * bytes"),
    ("messages of different calls have one mark", ENGINE + "call_history.hpp", "    operation.call_tag = fold(call_hash_);\n", "    operation.call_tag = 7;\n"),
    ("memory is written after a failure", ENGINE + "failure_handler.cpp", "parts_.runner.abandon()", "true"),
    ("members of a node come in different orders", ENGINE + "runner.cpp", "      before += segment < width ? 0 : segment - width + 1;\n", "      before += segment;\n"),
    ("the room is never free again", ENGINE + "runner.cpp", "  in_room_ = nullptr;\n  leave_room();\n", "  in_room_ = nullptr;\n"),
    ("a later meeting does not wait for the one before", ENGINE + "runner.cpp", "    if (in_node_.serving != room_turn_of(operation, part)) return false;\n", ""),
    # The room: which step may be written, and which may be read.
    ("a slot is written while it is read", NODE + "room.hpp", "(holder == StepStorage::slot ? slot_ring : line_ring) - in_use", "(holder == StepStorage::slot ? slot_ring : line_ring) - in_use + 1"),
    ("a page is written while it is read", NODE + "room.hpp", "(holder == StepStorage::slot ? slot_ring : line_ring) - in_use", "(holder == StepStorage::slot ? slot_ring - in_use : line_ring)"),
    ("whose call it is does not count", NODE + "room.hpp", "    return line(member, step).stamp.load(std::memory_order_acquire) == (std::uint64_t{step} << 32U | call_tag);\n", "    return line(member, step).stamp.load(std::memory_order_acquire) >> 32U == step;\n"),
    ("any step will do", NODE + "room.hpp", "    return line(member, step).stamp.load(std::memory_order_acquire) == (std::uint64_t{step} << 32U | call_tag);\n", "    return reaches(static_cast<StepNumber>(line(member, step).stamp.load(std::memory_order_acquire) >> 32U), step - 1);\n"),
    ("the others are taken to be a step further", NODE + "room.hpp", "  void note_reached_by_all(StepNumber step) { reached_by_all_ = step; }\n", "  void note_reached_by_all(StepNumber step) { reached_by_all_ = step + 2; }\n"),
    ("steps do not wrap around", NODE + "room_memory.hpp", "static_cast<std::int32_t>(a - k) >= 0", "a >= k"),
    ("who has published more is taken to be behind", NODE + "room.hpp", "    return reaches(static_cast<StepNumber>(word >> 32U), step);\n", "    return static_cast<StepNumber>(word >> 32U) == step;\n"),
    ("those who arrived are counted on", NODE + "room.hpp", "      all.arrived.store(0, std::memory_order_relaxed);\n", ""),
    ("an earlier result is taken", NODE + "room.hpp", "    return line(step).stamp.load(std::memory_order_acquire) == (std::uint64_t{step} << 32U | call_tag);\n", "    return line(step).stamp.load(std::memory_order_acquire) != 0;\n"),
    ("slots that move about leave their area", NODE + "room_memory.hpp", "step / slot_ring % (layout_.area / span) * span", "step / slot_ring % (layout_.area / span + 1) * span"),
    ("a step is published before its data is there", NODE + "in_node_form.cpp", "      if (!fill()) return std::exchange(has_worked_, false) || moved;\n      phase_ = FormPhase::arriving;\n", "      publish();\n      fill();\n      after_publishing();\n"),
    ("the last part is not taken", NODE + "one_phase_form.cpp", "  read_part(parts() - 1);\n", "  if (parts() == 1) read_part(parts() - 1);\n"),
    ("a part is taken a step late", NODE + "one_phase_form.cpp", "  if (step() >= 1) read_part(step() - 1);\n", "  if (step() >= 2) read_part(step() - 2);\n"),
    ("a scan waits for nobody before it", NODE + "in_node_form.hpp", "(needs_ == InputNeed::lower && member < call_->me())", "(needs_ == InputNeed::lower && member + 1 < call_->me())"),
    ("who has given up is not heard", NODE + "access_gate.cpp", "  memory_.header().given_up.store(1, std::memory_order_seq_cst);\n", ""),
    ("who has reached is taken to be at it for ever", NODE + "access_gate.cpp", "    is_on_gpu_ = false;  // nothing runs there any more\n  }\n  own_header().busy.store(0, std::memory_order_release);\n", "    is_on_gpu_ = false;  // nothing runs there any more\n  }\n"),
]

# Orders of memory, which the order of things in one thread cannot show.
THREADS = [
    ("data may come after the step", NODE + "room.hpp", "    memory_.line(memory_.index(), last_).stamp.store(std::uint64_t{last_} << 32U | call_tag, std::memory_order_release);\n", "    memory_.line(memory_.index(), last_).stamp.store(std::uint64_t{last_} << 32U | call_tag, std::memory_order_relaxed);\n"),
    ("data may be read before the step", NODE + "room.hpp", "    return line(member, step).stamp.load(std::memory_order_acquire) == (std::uint64_t{step} << 32U | call_tag);\n", "    return line(member, step).stamp.load(std::memory_order_relaxed) == (std::uint64_t{step} << 32U | call_tag);\n"),
    ("a slot may be written before all have read it", NODE + "room.hpp", "    const auto word = line(member, step).stamp.load(std::memory_order_acquire);\n    return reaches", "    const auto word = line(member, step).stamp.load(std::memory_order_relaxed);\n    return reaches"),
    ("the last to arrive may miss what others gave", NODE + "room.hpp", "fetch_add(1, std::memory_order_acq_rel) + 1 ==", "fetch_add(1, std::memory_order_relaxed) + 1 =="),
    ("the result may come after its word", NODE + "room.hpp", "    line(step).stamp.store(std::uint64_t{step} << 32U | call_tag, std::memory_order_release);\n", "    line(step).stamp.store(std::uint64_t{step} << 32U | call_tag, std::memory_order_relaxed);\n"),
    ("the result may be read before its word", NODE + "room.hpp", "    return line(step).stamp.load(std::memory_order_acquire) == (std::uint64_t{step} << 32U | call_tag);\n", "    return line(step).stamp.load(std::memory_order_relaxed) == (std::uint64_t{step} << 32U | call_tag);\n"),
]

SEARCHES = ["engine_simulation", "simulation", "node", "engine", "intra_node"]
WITH_THREADS = ["intra_node", "node", "communicator"]


def run(words, folder, limit=600, **more):
    try:
        return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=limit, check=False, **more)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 124, "", "it did not end in time")


def copy_source(source, target, instead=None):
    """Copies the files that git knows or would add. A file with equal content is left as it is, so that a build there does not repeat. The
    texts in `instead` take the place of files."""
    files = subprocess.run(["git", "-C", source, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], capture_output=True, check=True).stdout.split(b"\0")
    for name in filter(None, files):
        path = name.decode()
        if not os.path.isfile(os.path.join(source, path)):
            continue
        to = os.path.join(target, path)
        os.makedirs(os.path.dirname(to), exist_ok=True)
        with open(os.path.join(source, path), "rb") as stream:
            content = instead[path].encode() if instead and path in instead else stream.read()
        if os.path.exists(to):
            with open(to, "rb") as stream:
                if stream.read() == content:
                    continue
        with open(to, "wb") as stream:
            stream.write(content)
        shutil.copymode(os.path.join(source, path), to)


class Bench:
    """A copy of the source with a build folder of its own."""

    def __init__(self, source, threads):
        self.folder = tempfile.mkdtemp(prefix="seeded-bugs-")
        self.source = os.path.join(self.folder, "source")
        self.build = os.path.join(self.folder, "build")
        copy_source(source, self.source)
        self.tests = WITH_THREADS if threads else SEARCHES
        words = ["-Db_sanitize=thread", "-Doptimization=1"] if threads else ["-Doptimization=1"]
        made = run(["meson", "setup", self.build, self.source, *words], self.folder)
        if made.returncode != 0:
            sys.exit(f"meson setup failed:\n{made.stdout}{made.stderr}")

    def compile(self):
        return run(["ninja", "-C", self.build, *[f"tests/{test}_test" for test in self.tests]], self.folder, limit=3600)

    def found_by(self):
        """The first test that fails, and its first words about it."""
        for test in self.tests:
            program = os.path.join(self.build, "tests", f"{test}_test")
            began = time.monotonic()
            environment = {**os.environ, "TSAN_OPTIONS": f"halt_on_error=1 suppressions={self.source}/tests/tsan.supp"}
            done = run([program], self.folder, limit=180, env=environment)
            if done.returncode != 0:
                said = [line for line in (done.stdout + done.stderr).splitlines() if "[  FAILED  ]" in line or "WARNING: ThreadSanitizer" in line or "in time" in line]
                return test, time.monotonic() - began, said[0].strip() if said else f"exit status {done.returncode}"
        return None

    def end(self):
        shutil.rmtree(self.folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--threads", action="store_true")
    parser.add_argument("--check", action="store_true", help="only whether each still has its place in the source")
    given = parser.parse_args()
    bugs = list(enumerate(THREADS if given.threads else BUGS, 1))
    if given.only:
        bugs = [each for each in bugs if str(each[0]) in given.only.split(",")]
    lost = [f"{number}: {name}: {file} does not have its words exactly once" for number, (name, file, old, _) in bugs
            if open(os.path.join(given.source, file), encoding="utf-8").read().count(old) != 1]
    if lost:
        sys.exit("\n".join(lost))
    if given.check:
        print(f"{len(bugs)} bugs have their places")
        return
    bench = Bench(given.source, given.threads)
    try:
        made = bench.compile()
        if made.returncode != 0:
            sys.exit(f"the source does not build:\n{made.stdout[-3000:]}")
        if found := bench.found_by():
            sys.exit(f"without any bug {found[0]} fails: {found[2]}")
        missed = []
        for number, (name, file, old, new) in bugs:
            path = os.path.join(bench.source, file)
            with open(path, encoding="utf-8") as stream:
                right = stream.read()
            with open(path, "w", encoding="utf-8") as stream:
                stream.write(right.replace(old, new))
            made = bench.compile()
            found = None
            if made.returncode != 0:
                print(f"{number:3} {name}: does not compile\n{made.stdout[-2000:]}", flush=True)
            else:
                found = bench.found_by()
                print(f"{number:3} {name}: " + (f"{found[0]}, {found[1]:.1f} s: {found[2]}" if found else "NOT FOUND"), flush=True)
            if not found:
                missed.append(name)
            with open(path, "w", encoding="utf-8") as stream:
                stream.write(right)
        print(f"{len(bugs) - len(missed)} of {len(bugs)} found")
        sys.exit(1 if missed else 0)
    finally:
        bench.end()


if __name__ == "__main__":
    main()
