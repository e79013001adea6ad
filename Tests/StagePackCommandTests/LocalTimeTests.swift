import StageModel
import StagingService
import Testing

struct LocalTimeTests {
    @Test func aTimeIsShownToTheMinuteWithItsDistance() {
        let now = InternetTime(secondsSince1970: 1_795_665_600)
        let time = InternetTime(secondsSince1970: 1_795_665_600 - 7200)
        let text = time.text(at: now)
        #expect(text == "\(time.localTime.dropLast(3)) (2 hours ago)")
        #expect(text.wholeMatch(of: #/\d{4}-\d\d-\d\d \d\d:\d\d \(2 hours ago\)/#) != nil)
    }

    @Test func aYearThatTheCLibraryCannotRepresentIsShownWhole() {
        let time = InternetTime(secondsSince1970: 1 << 60)
        #expect(time.localTime == time.description)
        #expect(time.text.hasPrefix("\(time) (in "))
    }
}
