-- One attribute joins all streams.
Register Stream S1 (A integer);
Register Stream S2 (A integer);
Register Stream S3 (A integer);
Register Stream S4 (A integer);
Register Stream S5 (A integer);

Select * From S1 [Rows 50], S2 [Rows 50], S3 [Rows 50], S4 [Rows 50], S5 [Rows 50]
Where S1.A = S2.A and S2.A = S3.A and S3.A = S4.A and S4.A = S5.A
