"""What hangs, where no batch comes: from stacks and the kernel's figures, seen once or twice.

In order of reading: `stack.py` says what one process does, by its stacks; `hang.py` which process
owes the batch that training waits for, why it does not come, and which of several ranks the others
wait for.
"""
