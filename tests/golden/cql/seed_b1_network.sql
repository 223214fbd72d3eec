-- Bytes that three links have in common (Babu, section 1.3).
Register Stream C (pid integer, size integer) Rate 1000 Per Second;
Register Stream B (pid integer, size integer) Rate 1000 Per Second;
Register Stream O (pid integer, size integer) Rate 1000 Per Second;

Select sum(C.size)
From C [Range 10 minutes], B [Range 10 minutes], O [Range 10 minutes]
Where C.pid = B.pid and B.pid = O.pid
