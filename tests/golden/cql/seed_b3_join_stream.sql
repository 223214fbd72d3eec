-- The windowed join as a stream.
Register Stream S1 (A integer, B integer);
Register Stream S2 (A integer, B integer, C integer);

Select Istream(S1.A) From S1 [Rows 1000], S2 [Range 2 Minutes] Where S1.A = S2.A and S1.A > 10 and S1.B < 20
