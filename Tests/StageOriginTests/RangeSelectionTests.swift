import Testing

@testable import StageOrigin

@Suite
struct RangeSelectionTests {
    static let cases: [(String?, Int64, RangeSelection)] = [
        (nil, 10, .whole),
        ("bytes=0-0", 10, .part(0..<1)),
        ("bytes=0-9", 10, .part(0..<10)),
        ("bytes=2-5", 10, .part(2..<6)),
        ("bytes=2-99", 10, .part(2..<10)),
        ("bytes=2-99999999999999999999999", 10, .part(2..<10)),
        ("bytes=9-", 10, .part(9..<10)),
        ("bytes=0-", 10, .part(0..<10)),
        ("bytes=-3", 10, .part(7..<10)),
        ("bytes=-10", 10, .part(0..<10)),
        ("bytes=-11", 10, .part(0..<10)),
        ("bytes=-99999999999999999999999", 10, .part(0..<10)),
        ("BYTES=1-2", 10, .part(1..<3)),
        ("bytes= 1-2 ", 10, .part(1..<3)),
        ("bytes=1-2,", 10, .part(1..<3)),
        ("bytes=10-", 10, .unsatisfiable),
        ("bytes=10-11", 10, .unsatisfiable),
        ("bytes=99999999999999999999999-", 10, .unsatisfiable),
        ("bytes=-0", 10, .unsatisfiable),
        ("bytes=0-", 0, .unsatisfiable),
        ("bytes=-1", 0, .whole),
        ("bytes=5-4", 10, .whole),
        ("bytes=0-1,3-4", 10, .whole),
        ("bytes=", 10, .whole),
        ("bytes=-", 10, .whole),
        ("bytes=a-b", 10, .whole),
        ("bytes=1", 10, .whole),
        ("bytes=1-2-3", 10, .whole),
        ("bytes=+1-2", 10, .whole),
        ("bytes=--1", 10, .whole),
        ("bytes=1 -2", 10, .whole),
        ("bytes 1-2", 10, .whole),
        ("lines=1-2", 10, .whole),
        ("", 10, .whole),
    ]

    @Test(arguments: cases)
    func aFieldSelectsWhatItSays(field: String?, size: Int64, selection: RangeSelection) {
        #expect(RangeSelection(field, size: size) == selection)
    }

    @Test(arguments: 0...5)
    func aSelectedPartIsNeverEmptyOrOutside(size: Int64) {
        for first in ["", "0", "1", "4", "5", "6"] {
            for last in ["", "0", "1", "4", "5", "6"] {
                let selection = RangeSelection("bytes=\(first)-\(last)", size: size)
                guard case .part(let part) = selection else { continue }
                #expect(!part.isEmpty && part.lowerBound >= 0 && part.upperBound <= size)
            }
        }
    }

    @Test
    func aFieldCutAnywhereSelectsTheWholeOrFewerDigits() {
        let field = "bytes=2-5"
        for count in 0..<field.count {
            let expected: RangeSelection =
                field.prefix(count) == "bytes=2-" ? .part(2..<10) : .whole
            #expect(RangeSelection(String(field.prefix(count)), size: 10) == expected)
        }
    }
}
