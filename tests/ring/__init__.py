"""Tests of ringscope.ring, most of them asked of real ranks that run a script of scripts/."""

from pathlib import Path

SCRIPTS = Path(__file__).with_name("scripts")
