"""The search for the fastest kernel of each problem: candidates, measurements, records."""
