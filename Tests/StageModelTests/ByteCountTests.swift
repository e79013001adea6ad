import Foundation
import StageModel
import Testing

@Suite struct ByteCountTests {
    private static let texts: [(Int64, String)] = [
        (0, "0 B"), (1, "1 B"), (999, "999 B"), (1000, "1.0 kB"), (1049, "1.0 kB"),
        (1050, "1.1 kB"), (1499, "1.5 kB"), (99_949, "99.9 kB"), (999_949, "999.9 kB"),
        (999_950, "1.0 MB"), (999_999, "1.0 MB"), (1_000_000, "1.0 MB"), (1_290_000, "1.3 MB"),
        (1_249_999, "1.2 MB"), (1_250_000, "1.3 MB"), (999_949_999, "999.9 MB"),
        (999_950_000, "1.0 GB"), (999_949_999_999, "999.9 GB"), (999_950_000_000, "1.0 TB"),
        (9_999_999_999_999_999, "10000.0 TB"), (.max, "9223372.0 TB"), (-999, "-999 B"),
        (-999_950, "-1.0 MB"), (-1_290_000, "-1.3 MB"), (.min, "-9223372.0 TB"),
    ]

    @Test(arguments: texts)
    func aCountIsRounded(count: Int64, text: String) {
        #expect(ByteCount(count).description == text)
    }

    private static let sizes: [(String, Int64?)] = [
        ("0", 0), ("10", 10), ("10B", 10), ("500K", 500_000), ("500k", 500_000),
        ("40.2 kB", 40_200),
        ("10GB", 10_000_000_000), ("10gb", 10_000_000_000), ("10GiB", 10 << 30), ("10gi", 10 << 30),
        ("1.5G", 1_500_000_000), ("1.5GiB", 3 << 29), ("0.000001MB", 1), ("0.29M", 290_000),
        ("1T", 1_000_000_000_000), ("1TiB", 1 << 40), ("512KiB", 512 << 10), ("1Mi", 1 << 20),
        ("4611686018427387903", (1 << 62) - 1), ("4611686018427387904", nil),
        ("4611687TB", nil), ("4611686.1TB", nil), ("9223372036854775807", nil),
        ("99999999999999999999", nil), ("", nil), ("B", nil), ("GB", nil), ("-1", nil), ("+1", nil),
        ("-1GB", nil), ("1.5", nil), ("1.5B", nil), (".5G", nil), ("1.G", nil), ("1.2.3G", nil),
        ("1.1234567G", nil), ("1  GB", nil), (" 1GB", nil), ("1GB ", nil), ("1GBs", nil),
        ("10XB", nil), ("1e3", nil), ("0x10", nil), ("١٠GB", nil), ("²GB", nil), ("1,5G", nil),
    ]

    @Test(arguments: sizes)
    func aSizeIsRead(text: String, count: Int64?) {
        #expect(ByteCount(parsing: text)?.rawValue == count)
    }

    @Test func aPrintedSizeIsReadAgain() throws {
        for (count, text) in Self.texts where (0..<1 << 62).contains(count) {
            let read = try #require(ByteCount(parsing: text), "\(text)")
            #expect(read.description == text, "\(count)")
        }
    }

    @Test(arguments: [(0, 0), (.max, .max), (-5, 0), (.min, 0)] as [(Int64, Int64)])
    func encodedCountsAreClampedAndCanBeDecoded(count: Int64, decoded: Int64) throws {
        let data = try JSONEncoder().encode([ByteCount(count)])
        #expect(try JSONDecoder().decode([ByteCount].self, from: data) == [ByteCount(decoded)])
    }
}
