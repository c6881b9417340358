#!/usr/bin/env python3
"""docs/figures/story.md has the commands of images/story.py that are for the page, all of them and in this order: whoever changes the story writes the page anew (`make story-doc`)."""
import re, sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "images"))
import story  # noqa: E402

PAGE = HERE.parents[1] / "docs/figures/story.md"


def main():
    written = [line.removeprefix("    $ ") for line in PAGE.read_text().splitlines() if line.startswith("    $ ")]
    known = story.Story(HERE, HERE.parents[1] / "images/series", 2).commands(on_page=True)
    # Words that only a run knows stand in braces.
    patterns = [re.sub(r"\\\{\w+\\\}", r"\\S+", re.escape(command)) for command in known]
    wrong = [f"the page says\n  {line}\nwhere the story says\n  {command}" for line, pattern, command in zip(written, patterns, known) if not re.fullmatch(pattern, line)]
    if wrong or len(written) != len(known):
        sys.exit(f"{PAGE.name} is not the story's ({len(written)} commands, {len(known)} in images/story.py): `make story-doc`\n" + "\n".join(wrong[:3]))
    for words in ("/tmp/", f"{HERE.parents[1]}/"):
        if words in PAGE.read_text():
            sys.exit(f"{PAGE.name}: has a path of the machine it was made on: {words}")
    print(f"{PAGE.name}: {len(written)} commands, as in images/story.py")


if __name__ == "__main__":
    main()
