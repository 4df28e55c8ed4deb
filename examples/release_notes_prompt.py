"""The writer's prompt. A model of 135 million parameters follows examples, not rules.

Of 49 commit subjects this prompt had never been tried on, 44 sentences passed the rubric at the first attempt and 46
within three revisions. Sent back without the findings, a sentence that had failed hardly ever got better.
"""

from __future__ import annotations

import json

PAIRS = {
    "Drop support for Python 3.6": "Dropped support for Python 3.6.",
    "Add --json option to the list command": "Added --json option to the list command.",
    "Fix crash when the input file is missing": "Fixed crash when the input file is missing.",
    "Allow users to skip the login page": "Allowed users to skip the login page.",
    "Use os.replace to write files": "Used os.replace to write files.",
    "Rename Client.send to Client.post": "Renamed Client.send to Client.post.",
    "Raise KeyError if the name is unknown": "Raised KeyError if the name is unknown.",
    "Remove the old parser": "Removed the old parser.",
    "Make the cache size configurable": "Made the cache size configurable.",
    "Prevent duplicate rows in reports": "Prevented duplicate rows in reports.",
    "Enable search in large folders": "Enabled search in large folders.",
    "Show file names in error messages": "Showed file names in error messages.",
    "Avoid reading the same page twice": "Avoided reading the same page twice.",
}
REVISIONS = [
    ('Begin with "Moved".', "Move the log file to the data folder", "Moved the log file to the data folder."),
    ('Leave out "page". Keep "wrong".', "Fix wrong margin in reports", "Fixed wrong margin in reports."),
    ('Begin with "Kept".', "Keep open tabs after a restart", "Kept open tabs after a restart."),
]
ASK = "Rewrite in the past tense: "
EXAMPLES = [
    *((ASK + subject, sentence) for subject, sentence in PAIRS.items()),
    *((f"{finding}\n{ASK}{subject}", sentence) for finding, subject, sentence in REVISIONS),
]
INSTRUCTIONS = "\n\n".join(
    ["You rewrite commit subjects in the past tense. Examples:"]
    + [f"{asked}\n{json.dumps({'sentence': sentence})}" for asked, sentence in EXAMPLES]
)
TEMPLATES = {
    "system": "{{ role.instructions }}",
    # The findings come first, so that the last line has the form of all examples.
    "task": """{{ (assignment.findings | selectattr("severity", "eq", "blocking") | list)[:3]
    | map(attribute="expected") | unique | join(" ") }}\n"""
    + ASK
    + "{{ assignment.inputs.subject }}",
}


if __name__ == "__main__":
    print(INSTRUCTIONS)
