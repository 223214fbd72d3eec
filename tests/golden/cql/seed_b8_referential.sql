-- Windows of time of different lengths.
Register Stream S1 (A integer, B integer);
Register Stream S2 (A integer, B integer, C integer);

Select * From S1 [Range 5 Minutes], S2 [Range 10 Minutes] Where S1.A = S2.A
