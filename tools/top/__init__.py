"""`fleet top`: what a fleet does now, from its workers' metrics and from Kafka; or what a recording says it did."""
