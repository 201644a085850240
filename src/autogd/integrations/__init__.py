"""At home in other people's training loops: each file needs the framework that it is named for, and only it does."""
