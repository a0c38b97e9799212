"""What waits for a slow server waits as long as the server was seen to need."""

from helix_desktop.engine.server_speed import PATIENCE, SLOW_READING, ServerSpeed


def test_nothing_is_added_for_a_provider_that_was_never_measured() -> None:
    speed = ServerSpeed()
    assert speed.reading_seconds(8_000, is_local=False) == 0.0
    assert speed.document_seconds(8_000, is_local=False) == 0.0
    assert speed.reading_seconds(8_000, is_local=True) == PATIENCE * 8_000 / SLOW_READING


def test_the_slowest_of_the_last_replies_counts() -> None:
    speed = ServerSpeed()
    for seconds in (10.0, 20.0):
        speed.measure_reply(
            read_tokens=1_000, first_word_seconds=seconds, written_tokens=100, seconds=seconds + 10
        )
    assert speed.reading_seconds(500, is_local=True) == PATIENCE * 500 / 50
    assert speed.document_seconds(0, is_local=True) == PATIENCE * 1_500 / 10


def test_what_the_server_had_cached_measures_nothing() -> None:
    speed = ServerSpeed()
    speed.measure_reply(read_tokens=20, first_word_seconds=0.01, written_tokens=3, seconds=0.1)
    assert not speed.reading
    assert not speed.writing
