# Owner(s): ["module: functorch"]
"""The README says what the stored results say, and names files that exist."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from torch.testing._internal.common_utils import run_tests, TestCase


HOME = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(HOME / "scripts"))

from overlaykit import pins, readme  # noqa: E402
from overlaykit.cli import UserError  # noqa: E402


class TestReadme(TestCase):
    def setUp(self) -> None:
        super().setUp()
        self.text = (HOME / "README.md").read_text("utf-8")

    def test_tables_are_those_of_the_results(self) -> None:
        self.assertEqual(readme.rendered(self.text), self.text)
        self.assertEqual(
            self.text.count("<!-- end -->"), self.text.count("from scripts/results")
        )

    def test_an_edited_table_is_noticed(self) -> None:
        edited = self.text.replace("| exact, overlay | 0 of", "| exact, overlay | 9 of")
        self.assertNotEqual(edited, self.text)
        self.assertEqual(readme.rendered(edited), self.text)

    def test_a_missing_result_is_named(self) -> None:
        block = "<!-- real from scripts/results/none.json -->\n<!-- end -->"
        with self.assertRaisesRegex(UserError, "scripts/results/none.json"):
            readme.rendered(block)

    def test_links_and_commands_exist(self) -> None:
        for name in ("README.md", "CONTRIBUTING.md"):
            text = (HOME / name).read_text("utf-8")
            paths = re.findall(r"\]\((?!https?:)([^)#]+)\)", text)
            paths += re.findall(r"(?<![\w/])scripts/\w+(?:\.py)?(?![\w/.-])", text)
            for path in paths:
                self.assertTrue((HOME / path).exists(), f"{name} names {path}")

    def test_supported_releases_are_those_pinned(self) -> None:
        versions = re.findall(r"^\| (\d+\.\d+\.\d+) \|", self.text, re.MULTILINE)
        self.assertEqual(versions, [base.version for base in pins.load().bases])


if __name__ == "__main__":
    run_tests()
