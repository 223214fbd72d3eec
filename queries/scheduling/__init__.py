"""Scheduling: strategies, job trees and the shared step graph of standing queries."""
