-- The same with a filter on one side.
Register Stream S1 (A integer, B integer);
Register Stream S2 (A integer, B integer, C integer);

Select * From S1 [Range 5 Minutes], S2 [Range 10 Minutes] Where S1.A = S2.A and S1.B > 10
