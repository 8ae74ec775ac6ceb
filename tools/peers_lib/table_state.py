# SPDX-License-Identifier: Apache-2.0
"""What `tools/peers table` has chosen and measured so far: a JSON file that every step replaces as a whole, so that an
interruption loses the step under way and nothing else.
"""
import json
import os
from pathlib import Path

from .errors import Misuse
from .peers import OURS, Launch
from .variants import Variant

FORMAT = 2


class TableState:
    """`about` says how it is measured. A file that was measured otherwise is refused: its times are of something else. If
    only our program is another one, the settings of the other libraries stay.
    """

    def __init__(self, path: Path, about: dict):
        self.path = path
        self.about = about
        self.seconds = 0.0  # that measuring took, over all runs of the command
        self.versions: dict[str, str] = {}
        self.chosen: dict[str, dict] = {}  # by ranks, peer, operation and size
        self.rounds: dict[str, list[dict]] = {}  # by ranks; of each round, by subject and row, the us and the cores' distance in ns
        self.repeats: dict[str, dict] = {}  # by ranks: `rows`, and their `rounds`
        self.left_out: dict[str, dict[str, str]] = {}  # by ranks, then by peer, or peer and operation
        self.older: Path | None = None  # the state of an older program, from which the others' settings are

    FIELDS = ("about", "seconds", "versions", "chosen", "rounds", "repeats", "left_out")

    @staticmethod
    def load(path: Path) -> "TableState":
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if found["format"] != FORMAT:
                raise Misuse(f"{path}: its format is {found['format']}; this tool reads {FORMAT}. Remove it, or name another file with --state")
            state = TableState(path, found["about"])
            for name in TableState.FIELDS:
                setattr(state, name, found[name])
            return state
        except FileNotFoundError:
            raise Misuse(f"{path}: nothing has been measured yet; leave --readme out first, or name another file with --state") from None
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise Misuse(f"{path}: it is no state of `peers table` ({error!r}); remove it, or name another file with --state") from None

    @staticmethod
    def open(path: Path, about: dict) -> "TableState":
        if not path.exists():
            return TableState(path, about)
        state = TableState.load(path)
        changed = [name for name in about if name != "commit" and about[name] != state.about.get(name)]
        if changed == ["program"]:
            return state.begun_anew(about)
        if changed:
            words = ", ".join(f"{name} was {state.about.get(name)}, is {about[name]}" for name in changed)
            raise Misuse(f"{path}: it was measured otherwise ({words}); remove it, or name another file with --state")
        return state

    def begun_anew(self, about: dict) -> "TableState":
        """The settings of the other libraries, without those that failed. The old file gets the name of its program."""
        again = TableState(self.path, about)
        again.versions = self.versions
        again.older = self.path.with_name(f"{self.path.stem}-{self.about.get('program')}{self.path.suffix}")
        self.path.replace(again.older)
        again.take_settings(self)
        again.save()
        return again

    def take_settings(self, other: "TableState") -> None:
        """Those of the libraries beside ours that another state has, without those that failed."""
        for ranks, peers in other.chosen.items():
            of_ranks = self.chosen.setdefault(ranks, {})
            for peer, operations in peers.items():
                if peer != OURS:
                    of_ranks.setdefault(peer, {name: sizes for name, sizes in operations.items() if sizes})

    def take_settings_of_file(self, path: Path) -> None:
        other = TableState.load(path)
        if other.about.get("machine") != self.about["machine"]:
            machines = f"{other.about.get('machine')}, here {self.about['machine']}"
            raise Misuse(f"{path}: its settings are of another machine ({machines}); leave --settings out, and they are chosen here")
        self.take_settings(other)

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        beside.write_text(json.dumps({"format": FORMAT} | {name: getattr(self, name) for name in self.FIELDS}) + "\n", encoding="utf-8")
        beside.replace(self.path)

    def choose(self, ranks: int, peer: str, operation: str, chosen: dict[str, Variant]) -> None:
        self.chosen.setdefault(str(ranks), {}).setdefault(peer, {})[operation] = {size: words_of(each) for size, each in chosen.items()}

    def has_chosen(self, ranks: int, peer: str, operation: str) -> bool:
        return operation in self.chosen.get(str(ranks), {}).get(peer, {})

    def variant(self, ranks: int, peer: str, operation: str, size: str) -> Variant | None:
        found = self.chosen.get(str(ranks), {}).get(peer, {}).get(operation, {}).get(size)
        return variant_of(found) if found else None


def words_of(variant: Variant) -> dict:
    return {"name": variant.name, "variables": variant.variables, "label": variant.label, "mca": variant.launch.mca,
            "environment": variant.launch.environment, "as_it_comes": variant.launch.as_it_comes}


def variant_of(words: dict) -> Variant:
    def pairs(name):
        return tuple((each[0], each[1]) for each in words[name])

    return Variant(words["name"], Launch(pairs("mca"), pairs("environment"), words["as_it_comes"]), pairs("variables"), label=words["label"])
