"""The commands of ``locust-llm`` that are more than thin; ``locust_llm.cli`` finds them."""
