"""The control process: membership, leader, placement, reconciliation and the supervision of task hosts."""
