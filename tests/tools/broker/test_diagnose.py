"""A dead broker's log becomes one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.broker.diagnose import java_crashed, why_it_died


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("java.io.IOException: No space left on device", "the disk is full"),
        ("Caused by: java.net.BindException: Address already in use", "another program took its port"),
        ("java.lang.OutOfMemoryError: Java heap space", "heap is full"),
        ("Error: LinkageError java.lang.UnsupportedClassVersionError: kafka/Kafka", "the Java is too old"),
    ],
)
def test_a_known_cause_is_told_with_what_to_do(tmp_path: Path, line: str, cause: str) -> None:
    """Wherever in the log it stands."""
    log = tmp_path / "broker.log"
    log.write_text(f"starting\n{line}\n\tat kafka.Kafka.main(Kafka.scala)\nbye\n")
    assert cause in why_it_died(log)


def test_an_unknown_cause_is_the_last_line_that_tells_of_trouble(tmp_path: Path) -> None:
    """Without the logger's own prefix and without the stack below it."""
    log = tmp_path / "broker.log"
    log.write_text(
        "2026-01-02 03:04:05.678 [main] WARN org.apache.kafka.X - harmless\n"
        "2026-01-02 03:04:05.679 [main] ERROR org.apache.kafka.Y - Exiting Kafka: bad cluster ID\n"
        "\tat kafka.Kafka.main(Kafka.scala)\n"
    )
    assert why_it_died(log) == "Exiting Kafka: bad cluster ID"


def test_a_crash_of_java_is_told_from_an_end_of_kafka(tmp_path: Path) -> None:
    """Only then the start-up archive is made anew."""
    log = tmp_path / "broker.log"
    log.write_text("# A fatal error has been detected by the Java Runtime Environment:\n")
    assert java_crashed(log)
    log.write_text("ERROR org.apache.kafka.Y - Exiting Kafka\n")
    assert not java_crashed(log)


def test_a_log_without_trouble_gives_its_last_line(tmp_path: Path) -> None:
    """Better than nothing."""
    log = tmp_path / "broker.log"
    log.write_text("one\ntwo\n")
    assert why_it_died(log) == "two"


def test_an_empty_or_missing_log_is_no_error(tmp_path: Path) -> None:
    """A broker killed at once has said nothing."""
    assert why_it_died(tmp_path / "nothing") == "it said nothing"
