"""The data converter: what a client needs of Temporal to read and write lastword's types."""

from __future__ import annotations

from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DataConverter

data_converter: DataConverter = pydantic_data_converter
"""Plain JSON on the wire, so a program in another language can start a delegation by name."""
