import StageEngine
import StageModel
import StageTransfer
import StagingService
import Testing

/// Codes of failures that downloader extensions get.
struct ExtensionCodeTests {
    static let subject = StagingFailure.Subject.pack(PackID(unchecked: "aurora"))
    static let exceeded = Plan.Refusal.exceedsAllowance(
        .downloadAllowance,
        needed: ByteCount(2),
        remaining: ByteCount(1)
    )
    static let missing = TransferError.refused(url: "http://host/file", status: 404)
    static let codes: [(StagingFailure, Int)] = [
        (.engine(.noSpace(needed: ByteCount(2), available: ByteCount(1)), about: nil), 102),
        (.refusal(.noSpace(needed: ByteCount(2), available: ByteCount(1)), of: subject), 102),
        (.engine(.transfer(missing), about: nil), 103),
        (.offline("the pack is not staged"), 103),
        (.refusal(exceeded, of: subject), 112),
        (.engine(.unknownPack(PackID(unchecked: "aurora")), about: nil), 113),
        (.refusal(.disallowedDomain(["host"]), of: subject), 202),
    ]

    @Test(arguments: codes)
    func aFailureHasTheClosestOfApplesCodes(failure: StagingFailure, code: Int) {
        #expect(failure.backgroundAssetsCode == code)
    }
}
