"""What the report takes of the lab, in one place: importing it needs the lab's extra."""

from madamoo.bench.analysis import counts, fronts_of, in_words, summarise
from madamoo.bench.problems import available
from madamoo.bench.runs import Damaged, read_record, read_records

__all__ = ["Damaged", "available", "counts", "fronts_of", "in_words", "read_record", "read_records", "summarise"]
