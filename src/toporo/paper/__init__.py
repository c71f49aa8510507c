"""Research: the paper's benchmarks, resumable runs under a protocol, tables and reports."""

from toporo.paper import dg, domainbed, sen1floods11, tpt48
from toporo.paper.base import BENCHMARKS, Benchmark, load_dataset, register
from toporo.paper.image_folder import load_images
from toporo.paper.loaded import BenchmarkData
from toporo.paper.methods import BENCH_METHODS, BenchMethod
from toporo.paper.protocols import Metric, Protocol, Variant

__all__ = [
    "BENCHMARKS",
    "BENCH_METHODS",
    "BenchMethod",
    "Benchmark",
    "BenchmarkData",
    "Metric",
    "Protocol",
    "Variant",
    "dg",
    "domainbed",
    "load_dataset",
    "load_images",
    "register",
    "sen1floods11",
    "tpt48",
]
