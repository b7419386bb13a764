"""What pages show, as values and markup; without NiceGUI, so that tests need no browser."""
