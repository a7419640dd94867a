"""What fleets gain from more workers: measured on this machine, and by simulation beyond."""
